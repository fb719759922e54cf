//! Segue and the kernel's own `seg6` and `seg6local`, as neighbours and side by side, and tshark as a reader of both.

mod compare;
mod divergence;
mod hosts;
mod kernel_headend;
mod pseudowires;
mod receivers;
mod segue_headend;
mod tshark;
