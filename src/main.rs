/// Of the C libraries too (`override`): a record is allocated by the Kafka client's thread and freed by another, which
/// costs the system's allocator a third of all CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    semel::cli::main()
}
