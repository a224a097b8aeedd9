//! Origins that QEMU opens: a process of `qemu-storage-daemon` serves each over NBD.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_nbd::address::Address;
use diffcache_nbd::client::Connection;
use nix::sys::signal::SigSet;
use rustix::process::{kill_process, set_parent_process_death_signal, Pid, Signal};
use serde_json::{Map, Value};

use super::nbd::Source;
use super::single::Ends;
use crate::device::disk::Disk;

const PROGRAM: &str = "qemu-storage-daemon";
const NAME: &str = "origin";
/// A daemon that serves no export after this time is ended.
const START: Duration = Duration::from_secs(20);
/// A daemon that cannot open the origin is started again for this time: one of an earlier process
/// may be about to end, and has it locked until then.
const RETRY: Duration = Duration::from_secs(3);
/// A daemon flushes the origin when it ends, and is killed after this time.
const END: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

/// A daemon for one origin.
pub struct Daemon {
    options: String,
    identity: String,
    socket: PathBuf,
    running: Mutex<Option<Running>>,
    _ends: Ends,
}

struct Running {
    child: Child,
    /// Returns the last line of its output, once that has ended.
    said: Option<JoinHandle<String>>,
}

impl Daemon {
    /// A daemon that opens what QEMU's options of a block device say, a JSON object. It starts
    /// when it is connected to.
    ///
    /// # Errors
    /// This is not a JSON object with a driver.
    pub(super) fn new(options: &str, socket: PathBuf, ends: Ends) -> io::Result<Self> {
        let wrong = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let parsed: Map<String, Value> = serde_json::from_str(options)
            .map_err(|error| wrong(format!("not QEMU's options of a block device: {error}")))?;
        if !parsed.get("driver").is_some_and(Value::is_string) {
            return Err(wrong(
                "QEMU's options of a block device lack a driver".into(),
            ));
        }
        let identity = identity(&parsed);
        let mut options = parsed;
        options.insert("node-name".into(), NAME.into());
        Ok(Self {
            options: Value::Object(options).to_string(),
            identity,
            socket,
            running: Mutex::new(None),
            _ends: ends,
        })
    }

    fn command(&self) -> Command {
        // QEMU reads two commas as one.
        let path = self.socket.to_string_lossy().replace(',', ",,");
        let mut command = Command::new(PROGRAM);
        command
            .args(["--blockdev", &self.options])
            .args(["--nbd-server", &format!("addr.type=unix,addr.path={path}")])
            .args([
                "--export",
                &format!("type=nbd,id={NAME},node-name={NAME},name={NAME},writable=on"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C is for the cache alone, which flushes first.
            .process_group(0);
        // SAFETY: the closure is two system calls, and allocates nothing.
        unsafe {
            command.pre_exec(|| {
                // The cache has its signals blocked, and a child inherits that.
                SigSet::all().thread_unblock()?;
                Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
            });
        }
        command
    }

    /// Connects to a daemon that runs; starts it if there is none.
    fn connect_to(&self, running: &mut Option<Running>) -> io::Result<Connection> {
        let address = Address::unix(self.socket.clone(), NAME);
        if let Some(found) = running.as_mut() {
            if found.child.try_wait()?.is_none() {
                return Connection::open(&address);
            }
        }
        let begun = Instant::now();
        loop {
            match self.start(running, &address) {
                Err(_) if begun.elapsed() < RETRY => std::thread::sleep(10 * PAUSE),
                found => return found,
            }
        }
    }

    fn start(&self, running: &mut Option<Running>, address: &Address) -> io::Result<Connection> {
        let mut child = spawn(self.command())?;
        let said = child.stderr.take().map(pass_on).transpose()?;
        let found = running.insert(Running { child, said });
        let begun = Instant::now();
        loop {
            match Connection::open(address) {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    if found.child.try_wait()?.is_some() {
                        return Err(found.why_it_ended());
                    }
                    if begun.elapsed() > START {
                        found.end();
                        *running = None;
                        return Err(error);
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Running {
    fn why_it_ended(&mut self) -> io::Error {
        // Some of its output may not have been read yet.
        let said = self.said.take().and_then(|said| said.join().ok());
        let said = said.unwrap_or_default();
        io::Error::other(format!("{PROGRAM} could not open the origin: {said}"))
    }

    /// Ends it after it has flushed the origin.
    fn end(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // It may have ended by itself.
            let _ = kill_process(id, Signal::TERM);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END {
            std::thread::sleep(PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Source for Daemon {
    fn connect(&self) -> io::Result<Connection> {
        let mut running = self.running.lock().unpoisoned();
        self.connect_to(&mut running)
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    /// A daemon knows the size that the origin had when it opened it.
    fn look_again(&self) -> io::Result<()> {
        let mut running = self.running.lock().unpoisoned();
        if let Some(mut found) = running.take() {
            found.end();
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let running = self.running.get_mut();
        if let Some(mut found) = running.unpoisoned().take() {
            found.end();
            // Nothing serves it any more, and the next daemon has not begun.
            let _ = std::fs::remove_file(&self.socket);
        }
    }
}

/// What QEMU's options of a block device name: the innermost of nodes that lie on others.
fn identity(options: &Map<String, Value>) -> String {
    let text = |name: &str| {
        options
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    if let Some(Value::Object(inner)) = options.get("file") {
        return identity(inner);
    }
    match text("driver") {
        "file" | "host_device" => {
            let path = Path::new(text("filename"));
            let known = File::open(path).ok().and_then(|file| file.identity());
            known.unwrap_or_else(|| format!("path {}", path.display()))
        }
        "rbd" => {
            let names = ["conf", "pool", "namespace", "image"].map(text);
            format!("rbd {}", names.join("/"))
        }
        "nbd" => identity_of_nbd(options),
        _ => Value::Object(options.clone()).to_string(),
    }
}

fn identity_of_nbd(options: &Map<String, Value>) -> String {
    let export = options.get("export").and_then(Value::as_str);
    let export = export.unwrap_or_default();
    let of = |name: &str| {
        options
            .get("server")
            .and_then(|server| server.get(name)?.as_str())
    };
    let port = || of("port").and_then(|port| port.parse().ok());
    match (of("path"), of("host"), port()) {
        (Some(path), ..) => Address::unix(path.into(), export).identity(),
        (None, Some(host), Some(port)) => Address::tcp(host, port, export).identity(),
        _ => Value::Object(options.clone()).to_string(),
    }
}

/// Copies a daemon's output to the log, and returns the last line.
fn pass_on(output: ChildStderr) -> io::Result<JoinHandle<String>> {
    let write = move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let lines = lines.inspect(|line| log::warn!("{PROGRAM}: {line}"));
        lines.last().unwrap_or_default()
    };
    std::thread::Builder::new().spawn(write)
}

type Start = (Command, Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as this process: a child gets its signal when
/// the thread that started it ends.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: Mutex<Option<Sender<Start>>> = Mutex::new(None);
    let ended = || io::Error::other("the thread that starts processes ended");
    let (answer, answered) = channel();
    let mut starter = STARTER.lock().unpoisoned();
    let commands = match starter.take() {
        Some(known) => known,
        None => start_starter()?,
    };
    let sent = commands.send((command, answer));
    *starter = Some(commands);
    drop(starter);
    sent.map_err(|_| ended())?;
    let child = answered.recv().map_err(|_| ended())?;
    child.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{PROGRAM}: {error}; install the package qemu-utils of the distribution"),
        )
    })
}

fn start_starter() -> io::Result<Sender<Start>> {
    let (send, receive) = channel::<Start>();
    let run = move || {
        for (mut command, answer) in receive {
            // The requester waits for the answer.
            let _ = answer.send(command.spawn());
        }
    };
    std::thread::Builder::new().spawn(run)?;
    Ok(send)
}

/// Where the daemon of an origin has its socket.
#[must_use]
pub fn socket(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("origin-{id:016x}.socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity_of(options: &str) -> String {
        let options = serde_json::from_str(options).unwrap();
        identity(&options)
    }

    #[test]
    fn an_origin_is_the_same_whatever_options_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let linked = folder.path().join("link");
        let file = File::create(&path).unwrap();
        std::os::unix::fs::symlink(&path, &linked).unwrap();
        for (driver, path) in [("file", &path), ("host_device", &linked)] {
            let plain = format!("{{\"driver\":\"{driver}\",\"filename\":{path:?}}}");
            let nested = format!("{{\"driver\":\"raw\",\"file\":{plain}}}");
            assert_eq!(file.identity(), Some(identity_of(&plain)));
            assert_eq!(file.identity(), Some(identity_of(&nested)));
        }
        let cinder = r#"{"driver":"rbd","pool":"p","image":"i","user":"cinder"}"#;
        let other = r#"{"driver":"rbd","pool":"p","image":"j"}"#;
        let again = r#"{"driver":"rbd","image":"i","pool":"p"}"#;
        assert_eq!(identity_of(again), identity_of(cinder));
        assert_ne!(identity_of(other), identity_of(cinder));
        let nbd = r#"{"driver":"nbd","export":"x","server":{"type":"inet","host":"H","port":"7"}}"#;
        let address = Address::parse("nbd://h:7/x").unwrap();
        assert_eq!(address.identity(), identity_of(nbd));
    }
}
