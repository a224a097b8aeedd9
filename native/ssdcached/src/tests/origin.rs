//! Origins in this process: disks that fail as disks do, which a server of NBD has.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;
use diffcache_faulty::Disk;
use diffcache_nbd::negotiation::{self, Exports};
use diffcache_nbd::server::{transmit, Export};

/// An origin, and its server.
pub struct Origin {
    pub disk: Disk,
    socket: PathBuf,
    connections: Arc<Mutex<Vec<UnixStream>>>,
}

impl Origin {
    pub fn new(folder: &Path, name: &str, size: usize) -> Self {
        let socket = folder.join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let origin = Self {
            disk: Disk::new(size),
            socket,
            connections: Arc::default(),
        };
        let (disk, connections) = (origin.disk.clone(), origin.connections.clone());
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, served) = (stream.unwrap(), Served(disk.clone()));
                let mut connections = connections.lock().unpoisoned();
                connections.push(stream.try_clone().unwrap());
                // The client sees how it ends.
                std::thread::spawn(move || drop(serve(stream, &served)));
            }
        });
        origin
    }

    pub fn name(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Ends the server, and starts it again without what was not flushed.
    pub fn crash(&self) {
        let mut connections = self.connections.lock().unpoisoned();
        for stream in connections.drain(..) {
            // Fails if the client has left.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.disk.cut(|_| 0);
    }
}

/// Has other servers in the places of some, of larger disks. None answers before each has a client.
pub fn answer_together(folder: &Path, names: &[&str], size: usize) {
    let bind = |name: &&str| {
        std::fs::remove_file(folder.join(name)).unwrap();
        UnixListener::bind(folder.join(name)).unwrap()
    };
    let listeners: Vec<UnixListener> = names.iter().map(bind).collect();
    // They end with the process of the test.
    std::thread::spawn(move || {
        let accept = |listener: &UnixListener| listener.accept().unwrap().0;
        let streams: Vec<UnixStream> = listeners.iter().map(accept).collect();
        for stream in streams {
            std::thread::spawn(move || drop(serve(stream, &Served(Disk::new(size)))));
        }
    });
}

fn serve(stream: UnixStream, served: &Served) -> io::Result<()> {
    match negotiation::offer(&mut &stream, served)? {
        Some(export) => transmit(stream, export),
        None => Ok(()),
    }
}

#[derive(Clone)]
struct Served(Disk);

impl Exports for Served {
    type Export = Self;

    fn find(&self, _name: &str) -> io::Result<Option<Arc<Self>>> {
        Ok(Some(Arc::new(self.clone())))
    }
}

impl Export for Served {
    type Read = u64;

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn begin_read(&self, offset: u64, _length: usize) -> u64 {
        offset
    }

    fn read_now(&self, _read: &u64, _buffer: &mut [u8]) -> bool {
        false
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(data, offset)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.write_at(&vec![0; length as usize], offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.sync()
    }
}
