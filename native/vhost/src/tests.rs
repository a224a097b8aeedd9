//! Guests of all kinds, against a volume in memory.

mod hostile;
mod limits;
mod requests;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use diffcache_nbd::negotiation::{offer, Exports};
use diffcache_nbd::server::{transmit, Export};
use diffcache_ssdcache::device::format::{checksum, BLOCK};
use diffcache_ssdcache::shared::hits::Hits;
use diffcache_ssdcache::shared::index::{Facts, Index, SERIAL_BYTES};
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{fadvise, Advice, OFlags};
use tempfile::TempDir;

use crate::frontend::{Guest, Kept};
use crate::service::{run, Handed};

/// Bytes of the volume: not a whole number of blocks.
const SIZE: usize = (1 << 20) + 1536;
/// Blocks of the cache device, whose slots begin here.
const SLOTS: u32 = 64;
const DATA: u64 = 8192;

/// What the daemon's export has. Writes can be held back.
#[derive(Default)]
struct Volume {
    bytes: Mutex<Vec<u8>>,
    seen: Mutex<Vec<String>>,
    held: Mutex<bool>,
    released: Condvar,
}

impl Volume {
    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(what);
        self.released.notify_all();
    }

    fn hold(&self, is_held: bool) {
        *self.held.lock().unwrap() = is_held;
        self.released.notify_all();
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// Waits until as many requests have come.
    fn wait_for(&self, count: usize) {
        let seen = self.seen.lock().unwrap();
        let few = |seen: &mut Vec<String>| seen.len() < count;
        drop(self.released.wait_while(seen, few).unwrap());
    }
}

impl Export for Volume {
    type Read = u64;

    fn size(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn begin_read(&self, offset: u64, length: usize) -> u64 {
        self.note(format!("read {offset} {length}"));
        offset
    }

    fn read_now(&self, _read: &u64, _buffer: &mut [u8]) -> bool {
        false
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = offset as usize;
        buffer.copy_from_slice(&self.bytes.lock().unwrap()[from..from + buffer.len()]);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.note(format!("write {offset} {}", data.len()));
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        if data[0] == 0xbd {
            return Err(io::Error::other("made to fail"));
        }
        let from = offset as usize;
        self.bytes.lock().unwrap()[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.note(format!("zero {offset} {length}"));
        let from = offset as usize;
        self.bytes.lock().unwrap()[from..from + length as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.note("flush".into());
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        Ok(())
    }
}

struct One(Arc<Volume>);

impl Exports for One {
    type Export = Volume;

    fn find(&self, name: &str) -> io::Result<Option<Arc<Volume>>> {
        Ok((name == "00000000000000000000000000000007").then(|| self.0.clone()))
    }
}

/// The daemon, and where its process of a guest listens.
struct Daemon {
    folder: TempDir,
    volume: Arc<Volume>,
    index: Index,
    hits: Hits,
    device: File,
    direct: File,
    nudge: std::os::fd::OwnedFd,
    listener: UnixListener,
}

impl Daemon {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut serial = [0; SERIAL_BYTES];
        serial[..4].copy_from_slice(b"name");
        let facts = Facts {
            data: DATA,
            export: 7,
            serial,
        };
        let index = Index::new(SLOTS, &facts).unwrap();
        index.set_size(SIZE as u64);
        index.set_open(true);
        let volume = Volume::default();
        *volume.bytes.lock().unwrap() = (0..SIZE).map(|n| (n / 100 % 251) as u8).collect();
        let path = folder.path().join("ssd");
        File::create_new(&path).unwrap();
        let [device, direct] = [0, OFlags::DIRECT.bits() as i32].map(|flags| {
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(&path)
                .unwrap()
        });
        device
            .set_len(DATA + u64::from(SLOTS) * BLOCK as u64)
            .unwrap();
        Self {
            listener: UnixListener::bind(folder.path().join("vhost")).unwrap(),
            folder,
            volume: Arc::new(volume),
            index,
            hits: Hits::new().unwrap(),
            device,
            direct,
            nudge: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        }
    }

    /// Caches a block with a byte of its own, and returns its data.
    fn cache(&mut self, block: u64, slot: u32, byte: u8) -> Vec<u8> {
        use diffcache_partitions::Mirror;
        let data = vec![byte; BLOCK];
        let at = DATA + u64::from(slot) * BLOCK as u64;
        self.device.write_all_at(&data, at).unwrap();
        self.index.put(block, slot, checksum(&data));
        data
    }

    /// Has the system forget what it has of the device in memory.
    fn forget(&self) {
        self.device.sync_data().unwrap();
        fadvise(&self.device, 0, None, Advice::DontNeed).unwrap();
    }

    /// Starts a process, as a thread: it serves one connection.
    fn start(&self) -> JoinHandle<io::Result<()>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let exports = One(self.volume.clone());
        std::thread::spawn(move || {
            if let Ok(Some(export)) = offer(&mut &ours, &exports) {
                let _ = transmit(ours, export);
            }
        });
        let copy = |file: std::os::fd::BorrowedFd<'_>| file.try_clone_to_owned().unwrap();
        let handed = Handed {
            listener: self.listener.try_clone().unwrap(),
            daemon: theirs,
            index: copy(self.index.file()),
            hits: copy(self.hits.file()),
            device: copy(self.device.as_fd()),
            direct: self.direct.try_clone().unwrap().into(),
            nudge: copy(self.nudge.as_fd()),
        };
        std::thread::spawn(move || run(handed, || Ok(())))
    }

    fn connect(&self, kept: Kept) -> Guest {
        Guest::connect(&self.folder.path().join("vhost"), kept).unwrap()
    }

    fn serve(&self) -> (Guest, JoinHandle<io::Result<()>>) {
        let process = self.start();
        (self.connect(Kept::new().unwrap()), process)
    }
}
