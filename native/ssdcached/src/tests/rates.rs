//! What volumes may do per second, by NBD.

use diffcache_nbd::protocol::Command;

use super::*;

const SIZE: usize = 1 << 20;

impl Process {
    fn set_rates(&self, rates: &Value) {
        self.done(&json!({ "command": "set", "volume": "v", "rates": rates }));
    }
}

#[test]
fn all_clients_of_a_volume_wait_and_no_other_requests_do() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder, 0);
    let origins = ["a", "b"].map(|name| origin::Origin::new(folder.path(), name, SIZE));
    process.attach("v", &origins[0], "write-back");
    process.attach("w", &origins[1], "write-through");
    // So few bytes that nothing begins again within this test.
    process.set_rates(&json!({ "write_bytes_sec": 1 }));
    let mut first = process.connect("v");
    first.write(0, &[1; 4096]).unwrap();
    first
        .send(Command::Write, (4096, 4096), &[2; 4096])
        .unwrap();
    let mut second = process.connect("v");
    second
        .send(Command::WriteZeroes, (8192, 4096), &[])
        .unwrap();
    let mut third = process.connect("v");
    let mut neighbour = process.connect("w");
    for _ in 0..3 {
        assert_eq!(vec![1; 4096], third.read(0, 4096).unwrap());
        assert_eq!(vec![0; 4096], third.read(4096, 4096).unwrap());
        third.flush().unwrap();
        third.trim(1 << 16, 4096).unwrap();
        neighbour.write(0, &[3; 4096]).unwrap();
    }
    process.set_rates(&json!({}));
    first.receive(0).unwrap();
    second.receive(0).unwrap();
    assert_eq!(vec![2; 4096], third.read(4096, 4096).unwrap());
}

#[test]
fn limits_are_there_after_a_restart_and_wrong_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rates = json!({ "read_iops_sec": 500, "read_iops_sec_max": 1000 });
    let origin = origin::Origin::new(folder.path(), "a", SIZE);
    let process = Process::start(&folder, 0);
    process.done(&json!({
        "command": "attach", "volume": "v", "origin": origin.name(), "mode": "write-through",
        "limit": 8, "rates": rates,
    }));
    let wrong = json!({ "command": "set", "volume": "v", "rates": { "read_iops_sec_max": 1 } });
    let refused = process.command(&wrong)["error"]["message"].to_string();
    assert!(refused.contains("needs read_iops_sec"), "{refused}");
    drop(process);
    let process = Process::start(&folder, 1);
    assert_eq!(rates, process.state("v")["rates"]);
    process.set_rates(&json!({}));
    assert_eq!(json!({}), process.state("v")["rates"]);
}
