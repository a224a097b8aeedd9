//! Clients that end while requests of theirs are under way.

use std::sync::atomic::{AtomicBool, Ordering};

use diffcache_faulty::{Effect, Fault, Operation, Valve};
use diffcache_nbd::protocol::Command;

use super::*;

const SIZE: usize = 1 << 20;

/// Has a client's write to block 0 wait at the origin, ends its connection, and connects again.
fn reconnect(end: impl FnOnce(&Process, Client)) {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let [slow, other] = ["a", "b"].map(|name| origin::Origin::new(folder.path(), name, SIZE));
    process.attach("v", &slow, "write-through");
    process.attach("w", &other, "write-through");
    let mut beside = process.connect("v");
    let mut first = process.connect("v");
    let valve = Valve::default();
    let hang = Fault::new(Operation::Write, Effect::Hang(valve.clone()));
    slow.disk.inject(hang.times(1));
    first.send(Command::Write, (0, 4096), &[1; 4096]).unwrap();
    valve.wait_for(1);
    assert_eq!(0, process.state("v")["leaving"]);
    beside.write(8192, &[3; 4096]).unwrap();
    end(&process, first);
    let export = process.state("v")["export"].as_str().unwrap().to_owned();
    let is_open = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let again = scope.spawn(|| {
            let mut second = Client::connect(&process.socket, &export).unwrap();
            let is_open = is_open.load(Ordering::Acquire);
            assert!(is_open, "the first write was under way");
            second.write(0, &[1; 4096]).unwrap();
            second.write(0, &[2; 4096]).unwrap();
            second.flush().unwrap();
            second.read(0, 4096).unwrap()
        });
        // Another volume does not wait.
        let mut neighbour = process.connect("w");
        neighbour.write(0, &[4; 4096]).unwrap();
        while process.clients.waiting() == 0 && !again.is_finished() {
            std::thread::yield_now();
        }
        let leaving = ["v", "w"].map(|volume| process.state(volume)["leaving"].as_u64());
        is_open.store(true, Ordering::Release);
        valve.open();
        assert_eq!(vec![2; 4096], again.join().unwrap());
        assert!(
            leaving[0] >= Some(1) && leaving[1] == Some(0),
            "{leaving:?}"
        );
    });
    assert_eq!([2; 4096], slow.disk.content()[..4096]);
}

#[test]
fn a_client_that_connects_again_waits_for_writes_of_the_one_that_closed() {
    reconnect(|_, client| drop(client));
}

#[test]
fn a_client_that_connects_again_waits_for_writes_of_the_one_that_was_disconnected() {
    reconnect(|process, client| {
        process.done(&json!({ "command": "disconnect", "volume": "v" }));
        drop(client);
    });
}

#[test]
fn a_client_that_gives_up_waiting_does_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let slow = origin::Origin::new(folder.path(), "a", SIZE);
    process.attach("v", &slow, "write-through");
    let mut first = process.connect("v");
    let valve = Valve::default();
    slow.disk
        .inject(Fault::new(Operation::Write, Effect::Hang(valve.clone())).times(1));
    first.send(Command::Write, (0, 4096), &[1; 4096]).unwrap();
    valve.wait_for(1);
    drop(first);
    let export = process.state("v")["export"].as_str().unwrap().to_owned();
    let asking = client::ask(&process.socket, &export).unwrap();
    while process.clients.waiting() == 0 {
        std::thread::yield_now();
    }
    drop(asking);
    while process.clients.waiting() > 0 {
        std::thread::yield_now();
    }
    valve.open();
    process.connect("v").write(0, &[2; 4096]).unwrap();
    assert_eq!([2; 4096], slow.disk.content()[..4096]);
}
