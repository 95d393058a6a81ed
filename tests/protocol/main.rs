//! The pure core, and the checker of the live tests: nothing here needs a service.

#[path = "../support/checker/mod.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod checker;
#[path = "../support/generator.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod generator;
#[path = "../support/random.rs"]
#[allow(dead_code, reason = "the live tests use the rest")]
mod random;
mod seeded_faults;
