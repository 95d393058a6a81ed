//! How the process keeps its memory small.

/// Lets the C library keep two heaps rather than eight for each core.
///
/// Records are allocated by the client library's threads and freed by the pipeline's; every heap that takes part keeps
/// what was freed in it. With the default, a sixth of the memory is such leftovers. Called first thing, before threads.
pub fn share_heaps() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt sets a number; no other thread runs yet. A refusal changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}
