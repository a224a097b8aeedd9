//! FUSE_NOTIFY_RESEND (Linux 6.9): the kernel puts requests that were read and not answered back into its queue.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::processes::shared::{Counter, Shared};

/// Bytes of `struct fuse_out_header`: length, notification, and 0 for the number of a request.
const LEN: u32 = 16;
/// From linux/fuse.h.
const FUSE_NOTIFY_RESEND: i32 = 7;

/// How a worker gets the requests that the worker before it did not answer.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
enum Way {
    /// The kernel sends them again.
    Resent = 1,
    /// From the copies in the slots.
    Copies = 2,
}

/// Have the kernel send unanswered requests again, and note for the status whether it does. Return false if their copies are to be answered.
pub fn request(fuse: impl AsFd, shared: &Shared) -> bool {
    match notify(fuse) {
        Ok(true) => {
            note(shared, Way::Resent);
            true
        }
        Ok(false) => {
            if note(shared, Way::Copies) {
                log::info!("Answering copies of the requests that a worker leaves unanswered: this kernel cannot send them again (Linux 6.9 or later can)");
            }
            false
        }
        Err(error) => {
            note(shared, Way::Copies);
            log::warn!("Answering the copies of unanswered requests, as the kernel did not send them again: {error}");
            false
        }
    }
}

/// Note how a worker gets unanswered requests; return whether the one before it got them in another way, or there was none.
fn note(shared: &Shared, way: Way) -> bool {
    let before = shared.counter(Counter::Resend);
    before.swap(way as u64, Ordering::Relaxed) != way as u64
}

/// Return whether the kernel sends unanswered requests again; none before the first worker.
pub fn is_used(shared: &Shared) -> Option<bool> {
    match shared.get(Counter::Resend) {
        0 => None,
        way => Some(way == Way::Resent as u64),
    }
}

/// Have the kernel send all requests again that no worker has answered; return false if this kernel cannot. Answers to such a request that was read before fail by ENOENT.
///
/// # Errors
/// Those of the write to `fuse`.
fn notify(fuse: impl AsFd) -> io::Result<bool> {
    let mut header = [0; LEN as usize];
    header[..4].copy_from_slice(&LEN.to_ne_bytes());
    header[4..8].copy_from_slice(&FUSE_NOTIFY_RESEND.to_ne_bytes());
    match rustix::io::write(fuse, &header) {
        Ok(_) => Ok(true),
        // A kernel refuses notifications that it does not know.
        Err(Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_notification_is_a_header_of_its_own_length() {
        let (mut kernel, worker) = UnixStream::pair().unwrap();
        assert!(notify(&worker).unwrap());
        let mut header = [0; 16];
        kernel.read_exact(&mut header).unwrap();
        assert_eq!(header[..4], 16u32.to_ne_bytes());
        assert_eq!(header[4..8], 7i32.to_ne_bytes());
        assert_eq!(header[8..], [0; 8]);
    }

    #[test]
    fn a_kernel_without_it_is_no_error() {
        // A file that takes no writes is refused by the same error.
        let none = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::empty());
        assert!(!notify(none.unwrap()).unwrap());
    }

    fn memory() -> Shared {
        Shared::map(Shared::create(1).unwrap()).unwrap()
    }

    #[test]
    fn the_status_has_what_the_kernel_can() {
        let shared = memory();
        assert_eq!(is_used(&shared), None);
        let (_kernel, worker) = UnixStream::pair().unwrap();
        assert!(request(&worker, &shared));
        assert_eq!(is_used(&shared), Some(true));
        let none = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::empty());
        assert!(!request(none.unwrap(), &shared));
        assert_eq!(is_used(&shared), Some(false));
    }

    #[test]
    fn a_kernel_without_it_is_logged_once_for_a_mount() {
        // The memory outlives workers.
        let shared = memory();
        assert!(note(&shared, Way::Copies));
        assert!(!note(&shared, Way::Copies));
        assert!(note(&memory(), Way::Copies));
    }

    #[test]
    fn other_failures_are_errors() {
        let (kernel, worker) = UnixStream::pair().unwrap();
        drop(kernel);
        let error = notify(&worker).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
