//! FUSE_NOTIFY_RESEND (Linux 6.9): the kernel puts requests that were read and not answered back into its queue.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

/// Bytes of `struct fuse_out_header`: length, notification, and 0 for the number of a request.
const LEN: u32 = 16;
/// From linux/fuse.h.
const FUSE_NOTIFY_RESEND: i32 = 7;

/// Have the kernel send all requests again that no worker has answered; return false if this kernel cannot. Answers to such a request that was read before fail by ENOENT.
///
/// # Errors
/// Those of the write to `fuse`.
pub fn notify(fuse: impl AsFd) -> io::Result<bool> {
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

    #[test]
    fn other_failures_are_errors() {
        let (kernel, worker) = UnixStream::pair().unwrap();
        drop(kernel);
        let error = notify(&worker).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
