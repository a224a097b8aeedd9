//! Commands that wait for an origin which hangs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use diffcache_faulty::{Effect, Fault, Operation, Valve};

use super::*;
use crate::control::LIMITS;

const SIZE: usize = 1 << 20;

/// Regression: commands that waited for one origin kept all others from being carried out.
#[test]
fn commands_that_wait_for_an_origin_keep_no_others_away() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let [hung, other] = ["a", "b"].map(|name| origin::Origin::new(folder.path(), name, SIZE));
    process.attach("v", &hung, "write-through");
    process.attach("w", &other, "write-through");
    process.connect("v").write(0, &[1; 4096]).unwrap();
    let valve = Valve::default();
    let hang = Fault::new(Operation::Sync, Effect::Hang(valve.clone()));
    hung.disk.inject(hang);
    let path = folder.path().join("control");
    let listener = UnixListener::bind(&path).unwrap();
    let commands = process.commands;
    // It ends with the process of the test.
    std::thread::spawn(move || {
        diffcache_control::serve(&listener, LIMITS, move |line| commands.execute(line));
    });
    let send = |command: Value| {
        let mut stream = UnixStream::connect(&path).unwrap();
        writeln!(stream, "{command}").unwrap();
        stream
    };
    let answer = |stream: UnixStream| {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let flush = |volume: &str| send(json!({ "command": "flush", "volume": volume }));
    let waiting: Vec<UnixStream> = (0..40).map(|_| flush("v")).collect();
    valve.wait_for(1);
    for answered in [send(json!({ "command": "status" })), flush("w")] {
        let answered = answer(answered);
        assert_eq!(None, answered.get("error"));
    }
    valve.open();
    for answered in waiting.into_iter().map(answer) {
        let refused = answered.get("error").map(|error| error["type"].clone());
        assert!(refused.is_none_or(|kind| kind == "Slow"), "{answered}");
    }
    assert_eq!(None, answer(flush("v")).get("error"));
}
