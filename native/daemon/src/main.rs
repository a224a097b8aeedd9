//! `diffcached`: see the library.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;

use diffcache_base::logging;
use diffcache_daemon::config::Config;
use diffcache_daemon::error::DaemonError;
use diffcache_daemon::processes::{keeper, supervisor, worker};
use diffcache_mounter::server::{self, Limits};

const USAGE: &str = "\
Usage: diffcached serve|supervise CONFIG
       diffcached mount FOLDER [MOST]
       diffcached --version

Serves disk images while they arrive. \"diffcache lazy serve\" starts it for one
image, \"diffcache-lazy\" for those of a host, with the configuration (JSON).

\"mount\" is the mounter: it mounts below FOLDER, MOST images at a time (1024),
for clients of the socket that is its standard input.

DIFFCACHE_LOG_LEVEL is the least level of what is logged: error, warn, info
(default) or debug.
";

fn descriptor(text: &str) -> Result<BorrowedFd<'static>, DaemonError> {
    match text.parse() {
        // SAFETY: the keeper left the descriptor open for this process, which keeps it to its end.
        Ok(number) if number > 2 => Ok(unsafe { BorrowedFd::borrow_raw(number) }),
        _ => Err(DaemonError::Config(format!("'{text}' is not a descriptor"))),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, DaemonError> {
    text.parse()
        .map_err(|_| DaemonError::Config(format!("'{text}' is not a number")))
}

fn mount(folder: &str, limits: Limits) -> Result<(), DaemonError> {
    server::serve(std::io::stdin().as_fd(), Path::new(folder), limits)
        .map_err(|error| DaemonError::Mounter(error.to_string()))
}

fn run(arguments: &[&str]) -> Result<(), DaemonError> {
    match arguments {
        ["serve", config] => keeper::run(&Config::parse(config)?),
        ["keep", file] => keeper::run_from(Path::new(file)),
        ["can-keep", layout, file] => keeper::check(layout, Path::new(file)),
        ["take-over", file, lock, fuse, memory, profile, learned] => {
            let numbers = [lock, fuse, memory, profile, learned].map(|text| descriptor(text));
            let [lock, fuse, memory, profile, learned] = numbers;
            let numbers = [lock?, fuse?, memory?, profile?, learned?]
                .map(|descriptor| descriptor.as_raw_fd());
            // SAFETY: the program before this one left them open, and this one has not used them.
            unsafe { keeper::take_over(Path::new(file), numbers) }
        }
        ["supervise", config] => supervisor::run(supervisor::Config::parse(config)?),
        ["mount", folder] => mount(folder, Limits::default()),
        ["mount", folder, most] => {
            let mounts = number(most)?;
            mount(
                folder,
                Limits {
                    mounts,
                    ..Limits::default()
                },
            )
        }
        ["worker", fuse, memory, profile, learned, keeper] => worker::run(
            &Config::receive()?,
            descriptor(fuse)?,
            descriptor(memory)?,
            descriptor(profile)?,
            descriptor(learned)?,
            number(keeper)?,
        ),
        _ => Err(DaemonError::Config(
            "unknown arguments (see diffcached --help)".to_owned(),
        )),
    }
}

fn main() -> ExitCode {
    logging::start("diffcached");
    // Programs are run by a name of /proc, which is not what lists of processes are to show.
    if let Err(error) = rustix::thread::set_name(c"diffcached") {
        log::warn!("Running without a name: {error}");
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if matches!(arguments[..], [] | ["--help" | "-h"]) {
        print!("{USAGE}");
        return ExitCode::from(if arguments.is_empty() { 2 } else { 0 });
    }
    if arguments == ["--version"] {
        println!("diffcached {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
