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

const ALL: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD];

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, and the numbers are valid.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Keep the signals from this thread and those that it starts, until [`wait`] takes them. Child processes inherit this.
pub fn block() {
    // SAFETY: a valid set, and no old one asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set(&ALL), std::ptr::null_mut()) };
}

/// Wait for the next signal, at most for `time` if given.
pub fn wait(time: Option<Duration>) -> Option<Signal> {
    wait_for(&ALL, time)
}

/// Wait until a child process ends, at most for `time`. Other signals stay for [`wait`], also of a program that this process runs next.
pub fn wait_for_child(time: Duration) {
    wait_for(&[libc::SIGCHLD], Some(time));
}

fn wait_for(signals: &[libc::c_int], time: Option<Duration>) -> Option<Signal> {
    let set = set(signals);
    let limit = time.map(|time| libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    });
    loop {
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: a valid set and a valid or no time; no details asked for.
        let signal = unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), limit) };
        match signal {
            libc::SIGTERM | libc::SIGINT => return Some(Signal::Stop),
            libc::SIGHUP => return Some(Signal::Reload),
            libc::SIGCHLD => return Some(Signal::Child),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: while a keeper waited for the end of its worker, to run another program, a SIGTERM was taken and forgotten.
    #[test]
    fn a_signal_stays_while_a_child_is_waited_for() {
        let thread = std::thread::spawn(|| {
            block();
            // SAFETY: a valid signal, to this thread, which has it blocked.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
            wait_for_child(Duration::from_millis(1));
            wait(Some(Duration::ZERO))
        });
        assert_eq!(thread.join().unwrap(), Some(Signal::Stop));
    }
}
