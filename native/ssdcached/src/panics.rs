//! The end of the process when a thread panics.

/// Ends this process, by SIGABRT, when any of its threads panics; what the panic is about is
/// printed first.
///
/// The thread alone would end otherwise: its client would wait for ever, and others would be served
/// from what it left half changed. The cache is started again with what is on the device, as after
/// a kill, and QEMU connects anew.
pub fn end_process() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const CHILD: &str = "DIFFCACHE_TEST_OF_PANICS";

    #[test]
    fn a_panic_of_any_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            super::end_process();
            let _ = std::thread::spawn(|| panic!("made to")).join();
            return;
        }
        let test = std::thread::current().name().unwrap().to_owned();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([&test, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(nix::libc::SIGABRT));
        let printed = String::from_utf8_lossy(&child.stderr);
        assert!(printed.contains("made to"), "{printed}");
    }
}
