#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hob_fuzz::forms(bytes));
