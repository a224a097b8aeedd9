//! SIGPIPE, which sendfile(2) raises when a peer has gone, and which must not end the process whatever its program made of it.

/// Blocks SIGPIPE for the calling thread; writing to a closed socket is an error then, and nothing else.
pub fn block() {
    // SAFETY: `set` is a plain value that sigemptyset initialises before it is read; all three functions only touch what they are given, and
    // pthread_sigmask changes nothing but the calling thread's mask.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
