//! The SSD cache as a plug-in of nbdkit: one export for each volume.
//!
//! nbdkit speaks NBD with the clients; this opens the device and the origins, serves commands, and
//! says when it is ready. What is cached is decided in `diffcache-ssdcache`.

mod config;
mod control;
mod stop;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use diffcache_ssdcache::cache::{Cache, Volume};
use nbdkit::{Error, Flags, Result, Server, ThreadModel};
use serde_json::json;

use config::Config;

/// How often it is looked for blocks to write back.
const WRITE_BACK: Duration = Duration::from_millis(250);
/// Intents of regions are cleared that were not written for this time.
const SETTLE: Duration = Duration::from_secs(5);

const EINVAL: i32 = 22;
const ENOENT: i32 = 2;

static CONFIG: Mutex<Option<Config>> = Mutex::new(None);
static CACHE: OnceLock<Arc<Cache>> = OnceLock::new();
static LISTENER: Mutex<Option<UnixListener>> = Mutex::new(None);

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::new(EINVAL, error.to_string())
}

/// A client's connection to a volume.
struct Connection {
    cache: Arc<Cache>,
    volume: Arc<Volume>,
}

impl Server for Connection {
    fn name() -> &'static str {
        "diffcache-ssdcache"
    }

    fn description() -> Option<&'static str> {
        Some("cache of volumes on an SSD, started by \"diffcache ssdcache serve\"")
    }

    fn thread_model() -> Result<ThreadModel> {
        Ok(ThreadModel::Parallel)
    }

    fn config(key: &str, value: &str) -> Result<()> {
        let mut config = lock(&CONFIG);
        let config = config.get_or_insert_with(Config::default);
        config.set(key, value).map_err(refused)
    }

    fn config_complete() -> Result<()> {
        if lock(&CONFIG).is_none() {
            return Err(refused(
                "no parameters; start it with \"diffcache ssdcache serve\"",
            ));
        }
        Ok(())
    }

    fn get_ready() -> Result<()> {
        stop::block().map_err(refused)?;
        let mut config = lock(&CONFIG);
        let config = config.get_or_insert_with(Config::default);
        let cache = config.open().map_err(refused)?;
        if let Some(path) = &config.control {
            let listener = control::listen(path);
            let listener = listener.map_err(|e| refused(format!("{}: {e}", path.display())))?;
            *lock(&LISTENER) = Some(listener);
        }
        CACHE
            .set(Arc::new(cache))
            .map_err(|_| refused("opened twice"))
    }

    fn after_fork() -> Result<()> {
        // nbdkit has itself ended with its parent, which is whoever started the cache.
        rustix::process::set_parent_process_death_signal(None).map_err(refused)?;
        let cache = CACHE.get().ok_or_else(|| refused("not opened"))?;
        let (sockets, origins) = {
            let mut config = lock(&CONFIG);
            let config = config.get_or_insert_with(Config::default);
            (config.sockets(), config.origins().map_err(refused)?)
        };
        stop::watch(cache, sockets).map_err(refused)?;
        if let Some(listener) = lock(&LISTENER).take() {
            let cache = cache.clone();
            std::thread::spawn(move || control::serve(&listener, &cache, &origins));
        }
        let settled = cache.clone();
        std::thread::spawn(move || loop {
            std::thread::sleep(SETTLE);
            if let Err(error) = settled.settle() {
                eprintln!("diffcache-ssdcache: could not clear intents, will retry: {error}");
            }
        });
        let written_back = cache.clone();
        std::thread::spawn(move || loop {
            std::thread::sleep(WRITE_BACK);
            if let Err(error) = written_back.write_back_due() {
                eprintln!("diffcache-ssdcache: could not write blocks back, will retry: {error}");
                std::thread::sleep(SETTLE);
            }
        });
        announce(cache).map_err(refused)
    }

    fn open(_readonly: bool) -> Result<Box<dyn Server>> {
        let name = nbdkit::export_name().map_err(refused)?;
        let cache = CACHE.get().ok_or_else(|| refused("not opened"))?;
        let mut volumes = cache.volumes().into_iter();
        let volume = volumes.find(|volume| volume.export() == name);
        let volume = volume.ok_or_else(|| Error::new(ENOENT, "there is no such export"))?;
        Ok(Box::new(Connection {
            cache: cache.clone(),
            volume,
        }))
    }

    fn get_size(&self) -> Result<i64> {
        i64::try_from(self.volume.size()).map_err(refused)
    }

    // All connections see the same cache, and a flush is of the whole volume.
    fn can_multi_conn(&self) -> Result<bool> {
        Ok(true)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let _running = stop::begin();
        Ok(self.cache.read(&self.volume, buffer, offset)?)
    }

    fn write_at(&self, data: &[u8], offset: u64, _flags: Flags) -> Result<()> {
        let _running = stop::begin();
        Ok(self.cache.write(&self.volume, data, offset)?)
    }

    fn zero(&self, count: u32, offset: u64, _flags: Flags) -> Result<()> {
        let _running = stop::begin();
        Ok(self.cache.zero(&self.volume, offset, u64::from(count))?)
    }

    fn trim(&self, count: u32, offset: u64, _flags: Flags) -> Result<()> {
        let _running = stop::begin();
        Ok(self.cache.zero(&self.volume, offset, u64::from(count))?)
    }

    fn flush(&self) -> Result<()> {
        let _running = stop::begin();
        Ok(self.cache.flush(&self.volume)?)
    }
}

// In a module, because the macro's function is public and has no documentation.
mod entry {
    use super::Connection;

    nbdkit::plugin!(Connection {
        thread_model,
        config,
        config_complete,
        get_ready,
        after_fork,
        can_multi_conn,
        write_at,
        zero,
        trim,
        flush
    });
}

/// Says on the descriptor that was given for it what is served; the socket accepts clients.
fn announce(cache: &Cache) -> std::io::Result<()> {
    let mut config = lock(&CONFIG);
    let Some(config) = config.as_mut() else {
        return Ok(());
    };
    let Some(descriptor) = config.ready_fd.take() else {
        return Ok(());
    };
    let socket = escape(&config.socket);
    let uri = |export: String| format!("nbd+unix:///{export}?socket={socket}");
    let volumes = cache.volumes();
    let exports: BTreeMap<&str, String> = volumes
        .iter()
        .map(|volume| (volume.name(), uri(volume.export())))
        .collect();
    let line = json!({ "ready": true, "pid": std::process::id(), "exports": exports });
    // SAFETY: the caller duplicated this descriptor for us alone; "take" lets it be used once.
    let mut output = unsafe { File::from_raw_fd(descriptor) };
    output.write_all(format!("{line}\n").as_bytes())
}

/// A path as part of a URI.
fn escape(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let escaped = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(escaped).collect()
}
