//! The end of a process in which a thread panicked.

/// Ends the process, by SIGABRT, when the thread that has it panics.
///
/// Without that the thread alone would end, and a guest would wait for ever for the read that it had begun to serve.
pub struct AbortAtPanic;

impl Drop for AbortAtPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const CHILD: &str = "DIFFCACHE_TEST_OF_PANICS";

    #[test]
    fn a_panic_of_the_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            let thread = std::thread::spawn(|| {
                let _guard = super::AbortAtPanic;
                panic!("made to");
            });
            let _ = thread.join();
            return;
        }
        let test = std::thread::current().name().unwrap().to_owned();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([&test, "--exact", "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(libc::SIGABRT));
    }
}
