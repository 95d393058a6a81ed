//! `semel pipe`: the binary itself, on real files. Needs no services.

pub mod bench;
mod files;
mod kills;
mod lines;
mod streams;
