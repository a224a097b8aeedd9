//! Writes that wait for other volumes of their group.

use std::time::Duration;

use diffcache_nbd::protocol::Command;

use super::*;

const SIZE: usize = 1 << 20;

fn queue(process: &Process, volume: &str, milliseconds: u64) -> bool {
    let command = json!({ "command": "queue", "volume": volume, "milliseconds": milliseconds });
    process.done(&command)["queued"].as_bool().unwrap()
}

#[test]
fn writes_wait_until_they_go_on_and_nothing_else_waits() {
    for mode in ["write-through", "write-back"] {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(&folder, 0);
        let [held, other] = ["a", "b"].map(|name| origin::Origin::new(folder.path(), name, SIZE));
        process.attach("v", &held, mode);
        process.attach("w", &other, mode);
        let (mut writer, mut reader) = (process.connect("v"), process.connect("v"));
        let mut neighbour = process.connect("w");
        let export = process.state("v")["export"].as_str().unwrap().to_owned();
        // Longer than any command has them wait, whatever the machine has to do.
        process
            .commands
            .queues
            .begin(&export, Duration::from_secs(3600));
        writer.send(Command::Write, (0, 4096), &[1; 4096]).unwrap();
        neighbour.write(0, &[2; 4096]).unwrap();
        reader.flush().unwrap();
        assert_eq!(vec![0; 4096], reader.read(0, 4096).unwrap());
        assert!(queue(&process, "v", 0));
        writer.receive(0).unwrap();
        assert_eq!(vec![1; 4096], reader.read(0, 4096).unwrap());
        assert!(!queue(&process, "v", 0), "it had ended");
    }
}

#[test]
fn writes_go_on_after_their_time_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let origin = origin::Origin::new(folder.path(), "a", SIZE);
    process.attach("v", &origin, "write-through");
    let mut client = process.connect("v");
    queue(&process, "v", 1);
    client.write(0, &[1; 4096]).unwrap();
    client.zero(4096, 4096).unwrap();
    assert!(!queue(&process, "v", 0));
}

#[test]
fn a_volume_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let command = json!({ "command": "queue", "volume": "v", "milliseconds": 1 });
    assert!(process.command(&command)["error"]["message"].is_string());
}
