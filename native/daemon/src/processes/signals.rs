//! Signals, waited for by one thread instead of handled in the middle of another.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A signal that ends or wakes a process of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// SIGCHLD.
    Child,
}

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, and the numbers are valid.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Keep the signals from this thread and those that it starts, until [`wait`] takes them. Child processes inherit this.
pub fn block() {
    // SAFETY: a valid set, and no old one asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set(), std::ptr::null_mut()) };
}

/// Wait for the next signal, at most for `time` if given.
pub fn wait(time: Option<Duration>) -> Option<Signal> {
    let limit = time.map(|time| libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    });
    loop {
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: a valid set and a valid or no time; no details asked for.
        let signal = unsafe { libc::sigtimedwait(&set(), std::ptr::null_mut(), limit) };
        match signal {
            libc::SIGTERM | libc::SIGINT => return Some(Signal::Stop),
            libc::SIGHUP => return Some(Signal::Reload),
            libc::SIGCHLD => return Some(Signal::Child),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}
