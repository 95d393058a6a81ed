fn main() -> std::process::ExitCode {
    semel::cli::main()
}
