//! Volumes that are served by vhost-user, as far as no process is needed for that.

use std::time::Duration;

use diffcache_faulty::{Effect, Fault, Operation, Valve};
use diffcache_ssdcache::device::{Device, Place};

use super::*;
use crate::config::CacheConfig;
use crate::guests::rest;

const SIZE: usize = 1 << 20;

#[test]
fn a_volume_that_is_being_detached_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let origin = origin::Origin::new(folder.path(), "a", SIZE);
    process.attach("v", &origin, "write-back");
    process.connect("v").write(0, &[1; 4096]).unwrap();
    let valve = Valve::default();
    origin
        .disk
        .inject(Fault::new(Operation::Write, Effect::Hang(valve.clone())));
    std::thread::scope(|scope| {
        scope.spawn(|| process.done(&json!({ "command": "detach", "volume": "v" })));
        valve.wait_for(1);
        let answer = process.command(&json!({ "command": "vhost-open", "volume": "v" }));
        valve.open();
        assert_eq!("Refused", answer["error"]["type"], "{answer}");
    });
}

/// QEMU would wait for ever, and the socket stay.
#[test]
fn a_volume_whose_blocks_are_read_by_threads_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let origin = origin::Origin::new(folder.path(), "a", SIZE);
    process.attach("v", &origin, "write-through");
    let volume = process.cache.volume("v").unwrap();
    let disk = tempfile::tempfile().unwrap();
    disk.set_len(Device::bytes(CAPACITY)).unwrap();
    let place = Place {
        host: [1; 16],
        boot: [1; 16],
    };
    let device = Device::format(Box::new(disk), CAPACITY, place, [1; 24]).unwrap();
    let options = CacheConfig::default().options().unwrap();
    let volumes = Volumes {
        cache: Arc::new(Cache::open(device, options, Vec::new()).unwrap()),
        gate: Arc::default(),
        queues: Arc::default(),
    };
    let guests = Arc::new(Guests {
        directory: folder.path().join("vhost"),
        group: None,
        volumes: Arc::new(volumes),
        clients: Arc::default(),
        open: Mutex::default(),
    });
    let refused = guests.open(&volume).unwrap_err();
    assert!(refused.to_string().contains("by threads"), "{refused}");
    assert!(!guests.directory.exists());
}

#[test]
fn failures_in_a_row_have_processes_start_less_often() {
    let mut last = Duration::ZERO;
    let mut rests = (0..7).map(|_| {
        last = rest(false, last);
        last.as_secs()
    });
    assert!([1, 2, 4, 8, 16, 30, 30].into_iter().eq(&mut rests));
    assert!(rest(true, last) < Duration::from_secs(1));
}
