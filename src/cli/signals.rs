//! SIGINT, SIGTERM and SIGHUP for commands without a runtime: the first is noted, a second ends the process at once.

use std::sync::atomic::{AtomicI32, Ordering};

static ASKED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    ASKED.store(signal, Ordering::Relaxed);
}

/// From now on [`asked`] knows. A signal that whoever started this process has it ignore stays ignored.
pub fn listen() {
    let handler: extern "C" fn(libc::c_int) = note;
    // SAFETY: the handler does nothing but store a number. SA_RESETHAND gives the second signal its usual effect; calls
    // that are waiting are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND;
        libc::sigemptyset(&raw mut action.sa_mask);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            if before.sa_sigaction != libc::SIG_IGN {
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
}

/// The signal that asked this process to end.
pub fn asked() -> Option<i32> {
    Some(ASKED.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// The exit code that tells of it.
pub fn exit_code(signal: i32) -> u8 {
    128 + signal as u8
}
