//! The process of a guest: what it is started with, and what it may not do.

use std::io;
use std::os::fd::RawFd;

use diffcache_vhost::service::{self, Handed};
use rustix::process::{
    getppid, set_dumpable_behavior, set_parent_process_death_signal, setrlimit, DumpableBehavior,
    Pid, Resource, Rlimit, Signal,
};

/// Descriptors at most: two of each ring, and the others.
const FILES: u64 = 1024;
/// Bytes of memory of its own, besides that of the guest.
const MEMORY: u64 = 256 << 20;

/// Serves one connection. `words` are the number of the process that started this one, and those of
/// descriptors.
///
/// # Errors
/// The words are others, QEMU broke the protocol, or a connection failed.
pub fn run(words: &[&str]) -> io::Result<()> {
    let numbers: Result<Vec<RawFd>, _> = words.iter().map(|word| word.parse()).collect();
    let numbers = numbers.unwrap_or_default();
    let Some(([parent], files)) = numbers.split_first_chunk() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let files: [RawFd; Handed::COUNT] =
        files.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the parent duplicated these descriptors for this process, which uses them here alone.
    let handed = unsafe { Handed::from_raw(files) };
    // That of the file that it was started from is not telling.
    rustix::thread::set_name(c"ssdcache-guest")?;
    let parent = *parent;
    service::run(handed, move || restrict(parent))
}

/// Ends with the parent, and gives up what is not needed.
fn restrict(parent: i32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // No signal comes for one that ended before the call.
    if getppid() != Pid::from_raw(parent) {
        return Err(io::Error::other("the daemon has ended"));
    }
    // The guest's memory is in no dump, and others of this user do not look into it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for (what, most) in [
        (Resource::Nofile, FILES),
        (Resource::Data, MEMORY),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(what, limit)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    filter()
}

/// The system calls of a process that has all it needs: none of them opens, connects, starts or
/// reaches anything else.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getrandom,
    // Of the operations that its ring was made for.
    libc::SYS_io_uring_enter,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    libc::SYS_mmap,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv2,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Where the kernel has the architecture of a system call, and its number (seccomp(2)).
const ARCHITECTURE_AT: u32 = 4;
const NUMBER_AT: u32 = 0;

/// Has the kernel refuse all other system calls.
fn filter() -> io::Result<()> {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let step = |code: u32, (jt, jf): (usize, usize), k: u32| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let load = |at| step(BPF_LD | BPF_W | BPF_ABS, (0, 0), at);
    let end = |how| step(BPF_RET | BPF_K, (0, 0), how);
    let equal = |to, jumps| step(BPF_JMP | BPF_JEQ | BPF_K, jumps, to);
    let mut program = vec![
        load(ARCHITECTURE_AT),
        equal(ARCHITECTURE, (1, 0)),
        end(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
    ];
    for (at, number) in ALLOWED.iter().enumerate() {
        program.push(equal(*number as u32, (ALLOWED.len() - at, 0)));
    }
    program.push(end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    program.push(end(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which is valid until the call returns.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a file's owner, and so any process of the user, could be sent signals.
    #[test]
    fn files_have_no_owner_set() {
        let set = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            filter().unwrap();
            // SAFETY: it changes nothing of memory.
            let set = unsafe { libc::fcntl(0, libc::F_SETOWN, 1) };
            (set, io::Error::last_os_error().raw_os_error())
        };
        // The filter is of the thread alone.
        assert_eq!(
            (-1, Some(libc::EPERM)),
            std::thread::spawn(set).join().unwrap()
        );
    }
}
