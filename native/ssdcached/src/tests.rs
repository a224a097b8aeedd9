//! A cache with its clients and commands in this process, and origins that fail as disks do.

mod client;
mod commands;
mod direct;
mod history;
mod leaving;
mod model;
mod origin;
mod queues;
mod rates;
mod resizing;
mod starting;
mod stopping;
mod vhost;

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use diffcache_ssdcache::cache::Cache;
use rustix::fs::{fadvise, Advice};
use serde_json::{json, Value};
use tempfile::TempDir;

use crate::config::Config;
use crate::control::Commands;
use crate::exports::Volumes;
use crate::guests::Guests;
use crate::queues::Queues;
use crate::server::{self, Clients};
use crate::stop::Gate;
use crate::waiting::Waiting;
use client::Client;

/// Blocks of the cache.
const CAPACITY: u32 = 64;

/// Has the system forget what it has of the device in memory, but for what is being written.
fn forget_memory(folder: &TempDir) {
    let device = File::open(folder.path().join("ssd")).unwrap();
    fadvise(&device, 0, None, Advice::DontNeed).unwrap();
}

/// What a process has, of which others may follow in the same folder.
struct Process {
    cache: Arc<Cache>,
    clients: Arc<Clients>,
    commands: Commands,
    gate: Arc<Gate>,
    socket: PathBuf,
}

impl Process {
    /// The first one in a folder formats the device.
    fn start(folder: &TempDir, number: u32) -> Self {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let format = number == 0;
        if format {
            File::create(path("ssd")).unwrap();
        }
        let config = serde_json::json!({
            "device": path("ssd"), "capacity": CAPACITY, "format": format,
            "state": folder.path(), "socket": path("nbd"), "cache": {"dirty_age": 0},
        });
        let mut config = Config::parse(&config.to_string()).unwrap();
        let (cache, origins) = crate::opening::open(&mut config).unwrap();
        let cache = Arc::new(cache);
        let clients = Arc::new(Clients::default());
        let queues = Arc::new(Queues::default());
        let socket = folder.path().join(format!("nbd-{number}"));
        let listener = UnixListener::bind(&socket).unwrap();
        let gate = Arc::new(Gate::default());
        let volumes = Arc::new(Volumes {
            cache: cache.clone(),
            gate: gate.clone(),
            queues: queues.clone(),
        });
        let guests = Guests {
            directory: folder.path().join("vhost"),
            group: None,
            volumes: volumes.clone(),
            clients: clients.clone(),
            open: Mutex::default(),
        };
        let commands = Commands {
            cache: cache.clone(),
            origins,
            clients: clients.clone(),
            queues,
            guests: Arc::new(guests),
            waiting: Waiting::default(),
        };
        let served = clients.clone();
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                server::start(stream.unwrap(), &volumes, &served).unwrap();
            }
        });
        Self {
            cache,
            clients,
            commands,
            gate,
            socket,
        }
    }

    /// Sends a command, and returns its answer.
    fn command(&self, command: &Value) -> Value {
        self.commands.execute(command.to_string().as_bytes())
    }

    fn done(&self, command: &Value) -> Value {
        let answer = self.command(command);
        assert_eq!(None, answer.get("error"), "{command}");
        answer
    }

    fn attach(&self, volume: &str, origin: &origin::Origin, mode: &str) {
        self.done(&json!({
            "command": "attach", "volume": volume, "origin": origin.name(), "mode": mode,
            "limit": CAPACITY / 2,
        }));
    }

    /// The state of a volume.
    fn state(&self, volume: &str) -> Value {
        let answer = self.done(&json!({ "command": "status" }));
        answer["status"]["volumes"][volume].clone()
    }

    fn connect(&self, volume: &str) -> Client {
        let export = self.state(volume)["export"].as_str().unwrap().to_owned();
        Client::connect(&self.socket, &export).unwrap()
    }
}
