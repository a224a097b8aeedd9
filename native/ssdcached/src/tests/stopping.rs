//! The end of a process while an origin hangs.

use std::time::Duration;

use diffcache_faulty::{Effect, Fault, Operation, Valve};
use diffcache_nbd::protocol::Command;

use super::*;
use crate::stop;

const SIZE: usize = 1 << 20;

/// Regression: no origin was flushed while a request waited for one, and the next process took what
/// others had written for lost.
#[test]
fn an_origin_that_hangs_at_the_end_keeps_no_other_one_from_being_flushed() {
    for operation in [Operation::Write, Operation::Sync] {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(&folder, 0);
        let [hung, other] = ["a", "b"].map(|name| origin::Origin::new(folder.path(), name, SIZE));
        process.attach("v", &hung, "write-through");
        process.attach("w", &other, "write-through");
        process.connect("v").write(8192, &[1; 4096]).unwrap();
        let mut neighbour = process.connect("w");
        neighbour.write(0, &[2; 4096]).unwrap();
        let valve = Valve::default();
        hung.disk
            .inject(Fault::new(operation, Effect::Hang(valve.clone())));
        let mut stuck = process.connect("v");
        if operation == Operation::Write {
            stuck.send(Command::Write, (0, 4096), &[3; 4096]).unwrap();
            valve.wait_for(1);
        }
        // No time is long enough for a write that hangs, and none is needed without one.
        let flushed = stop::flush(&process.cache, &process.gate, Duration::ZERO);
        let failed = flushed.err().map(|error| error.to_string());
        let slow = "volume v: its origin takes too long".to_owned();
        // A write that has no answer is sent again to the next process.
        assert_eq!((operation == Operation::Sync).then_some(slow), failed);
        let next = Process::start(&folder, 1);
        assert_eq!(json!([]), next.state("w")["losses"]);
        next.connect("w").flush().unwrap();
        assert_ne!(json!([]), next.state("v")["losses"]);
        valve.open();
    }
}
