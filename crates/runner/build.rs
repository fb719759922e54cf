//! The version with the commit.

fn main() {
    segue_commit::emit();
}
