#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| segue_services::fuzz::counter(data));
