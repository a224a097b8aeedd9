//! Random requests of clients, with commands, failures of origins and ends of the cache between
//! them, against a model of what a client may read.
//!
//! `SSDCACHE_HISTORY_SEED` and `SSDCACHE_HISTORY_RUNS` give another first seed, and more runs.

use std::io;

use diffcache_faulty::{campaign, Effect, Fault, Operation, Random, Valve, EIO};
use diffcache_nbd::protocol::Command;

use super::model::{bytes_of, Model, SECTOR};
use super::origin::Origin;
use super::*;

const SIZE: usize = 48 * 4096;
const MODES: [&str; 4] = [
    "write-through",
    "write-back",
    "write-around",
    "pass-through",
];
const STEPS: usize = 150;

struct Volume {
    name: &'static str,
    origin: Origin,
    model: Model,
    client: Option<Client>,
    /// Whether its origin was made to fail since it was mended.
    is_faulty: bool,
}

impl Volume {
    /// A flush succeeded; a fault that is still to come makes another loss.
    fn note_flush(&mut self) {
        self.model.flush();
        if self.is_faulty {
            self.model.doubt();
        }
    }
}

struct History {
    folder: TempDir,
    process: Process,
    processes: u32,
    volumes: Vec<Volume>,
    random: Random,
    writes: u64,
}

impl History {
    fn new(mut random: Random) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(&folder, 0);
        let volume = |name| Volume {
            name,
            origin: Origin::new(folder.path(), name, SIZE),
            model: Model::new(SIZE),
            client: None,
            is_faulty: false,
        };
        let volumes = vec![volume("a"), volume("b")];
        for volume in &volumes {
            process.attach(volume.name, &volume.origin, random.choose(&MODES));
        }
        Self {
            folder,
            process,
            processes: 1,
            volumes,
            random,
            writes: 0,
        }
    }

    /// Uses the client of a volume, which connects if it has none.
    fn client(&mut self, n: usize) -> &mut Client {
        let volume = &mut self.volumes[n];
        let process = &self.process;
        volume
            .client
            .get_or_insert_with(|| process.connect(volume.name))
    }

    /// Sectors of a volume, often few.
    fn sectors(&mut self, n: usize) -> (usize, usize) {
        let all = self.volumes[n].model.sectors();
        let most = self.random.choose(&[1, 8, 24, 24, 100]);
        let count = 1 + self.random.below(most) as usize;
        (self.random.below((all - count) as u64) as usize, count)
    }

    fn command(&mut self, n: usize, command: &str, field: Value) -> Value {
        let mut command = json!({ "command": command, "volume": self.volumes[n].name });
        for (key, value) in field.as_object().into_iter().flatten() {
            command[key] = value.clone();
        }
        self.process.command(&command)
    }

    fn losses(&self, n: usize) -> Vec<(u64, u64)> {
        let losses = self.process.state(self.volumes[n].name)["losses"].clone();
        serde_json::from_value(losses).unwrap()
    }

    /// Checks that nothing fails but what was made to fail.
    fn check(&self, n: usize, done: &io::Result<()>) {
        let volume = &self.volumes[n];
        let name = volume.name;
        assert!(done.is_ok() || volume.is_faulty, "volume {name}: {done:?}");
    }

    fn step(&mut self) {
        let n = self.random.below(self.volumes.len() as u64) as usize;
        match self.random.below(40) {
            0..12 => self.write(n),
            12..14 => self.zero(n),
            14..20 => self.read(n),
            20..25 => drop(self.flush(n)),
            25 => self.late_write(n),
            26..30 => self.upkeep(n),
            30..34 => self.change(n),
            34..37 => self.fail(n),
            37 => self.resize(n),
            38 => self.detach(n),
            _ => self.kill(),
        }
        // What a server lost leaves its memory.
        self.volumes[n].origin.disk.evict();
        if self.random.once_in(2) {
            forget_memory(&self.folder);
        }
    }

    fn write(&mut self, n: usize) {
        self.writes += 1;
        let value = self.writes;
        let (first, count) = self.sectors(n);
        let data = bytes_of(value).repeat(count);
        let done = self.client(n).write((first * SECTOR) as u64, &data);
        self.check(n, &done);
        self.volumes[n]
            .model
            .write((first, count), value, done.is_ok());
    }

    fn zero(&mut self, n: usize) {
        let (first, count) = self.sectors(n);
        let (offset, length) = ((first * SECTOR) as u64, count * SECTOR);
        let trims = self.random.once_in(2);
        let client = self.client(n);
        let done = match trims {
            true => client.trim(offset, length),
            false => client.zero(offset, length),
        };
        self.check(n, &done);
        self.volumes[n].model.write((first, count), 0, done.is_ok());
    }

    fn read(&mut self, n: usize) {
        let (first, count) = self.sectors(n);
        let read = self.client(n).read((first * SECTOR) as u64, count * SECTOR);
        match read {
            Ok(data) => self.volumes[n].model.read(first, &data),
            Err(error) => self.check(n, &Err(error)),
        }
    }

    /// Flushes, and does without what was lost or writes it again. Returns whether all is durable.
    fn flush(&mut self, n: usize) -> bool {
        let flushed = self.client(n).flush();
        let losses = self.losses(n);
        if flushed.is_ok() {
            assert_eq!(Vec::<(u64, u64)>::new(), losses, "a flush that lies");
            self.volumes[n].note_flush();
            return true;
        }
        let volume = &self.volumes[n];
        let is_known = volume.is_faulty || volume.model.is_in_doubt() || !losses.is_empty();
        assert!(is_known, "volume {}: {flushed:?}", volume.name);
        if !volume.is_faulty && !losses.is_empty() && self.random.once_in(2) {
            self.make_good(n);
        }
        false
    }

    /// Does without what was lost, or writes it again; a flush must succeed then, unless it finds that
    /// more was lost before.
    fn make_good(&mut self, n: usize) {
        for _ in 0..3 {
            let losses = self.losses(n);
            if self.random.once_in(3) {
                let command = self.random.choose(&["accept-loss", "guest-ended"]);
                self.command(n, command, json!({}));
                self.volumes[n].model.accept();
            } else {
                losses.iter().for_each(|&lost| self.write_again(n, lost));
            }
            if self.client(n).flush().is_ok() {
                self.volumes[n].note_flush();
                return;
            }
            assert!(
                self.volumes[n].model.is_in_doubt(),
                "{:?} lost",
                self.losses(n)
            );
        }
        assert_eq!(Vec::<(u64, u64)>::new(), self.losses(n), "three times");
    }

    fn write_again(&mut self, n: usize, (offset, length): (u64, u64)) {
        self.writes += 1;
        let (value, first) = (self.writes, offset as usize / SECTOR);
        let count = (offset + length).div_ceil(SECTOR as u64) as usize - first;
        let data = bytes_of(value).repeat(count);
        let written = self.client(n).write((first * SECTOR) as u64, &data);
        self.check(n, &written);
        self.volumes[n].model.write((first, count), value, true);
    }

    /// A write that takes long, whose client ends meanwhile and repeats it over another connection,
    /// and writes something newer.
    fn late_write(&mut self, n: usize) {
        let volume = &mut self.volumes[n];
        let mode = self.process.state(volume.name)["mode"].clone();
        if mode == "write-back" || volume.is_faulty {
            return;
        }
        let valve = Valve::default();
        let hang = Fault::new(Operation::Write, Effect::Hang(valve.clone()));
        volume.origin.disk.inject(hang.times(1));
        self.writes += 2;
        let (older, newer) = (self.writes - 1, self.writes);
        let sectors = self.sectors(n);
        let (offset, length) = ((sectors.0 * SECTOR) as u64, sectors.1 * SECTOR);
        let data = |value| bytes_of(value).repeat(sectors.1);
        let client = self.client(n);
        client
            .send(Command::Write, (offset, length), &data(older))
            .unwrap();
        valve.wait_for(1);
        if self.random.once_in(2) {
            self.command(n, "disconnect", json!({}));
        }
        self.volumes[n].client = None;
        std::thread::spawn(move || valve.open());
        self.client(n).write(offset, &data(older)).unwrap();
        self.client(n).write(offset, &data(newer)).unwrap();
        self.volumes[n].origin.disk.mend();
        self.volumes[n].model.write(sectors, older, true);
        self.volumes[n].model.write(sectors, newer, true);
    }

    /// What the service does from time to time.
    fn upkeep(&mut self, n: usize) {
        let cache = self.process.cache.clone();
        let done = match self.random.below(3) {
            kind @ (0 | 1) => {
                let tasks = match kind {
                    0 => cache.take_idle(),
                    _ => cache.take_due(),
                };
                let failed = tasks.iter().filter_map(|task| cache.run(task));
                failed.map(io::Error::other).try_for_each(Err)
            }
            _ => {
                let flushed = self.command(n, "flush", json!({}));
                if flushed.get("error").is_none() {
                    self.volumes[n].note_flush();
                }
                Ok(())
            }
        };
        let volumes = &self.volumes;
        let is_known = volumes.iter().any(|v| v.is_faulty || v.model.is_in_doubt());
        assert!(done.is_ok() || is_known, "{done:?}");
    }

    fn change(&mut self, n: usize) {
        let limit = self.random.below(u64::from(CAPACITY) / 2);
        let mode = self.random.choose(&MODES);
        match self.random.below(5) {
            0 => drop(self.command(n, "set", json!({ "limit": limit }))),
            1 => drop(self.command(n, "invalidate", json!({}))),
            2 => {
                self.command(n, "disconnect", json!({}));
                self.volumes[n].client = None;
            }
            3 => drop(self.command(n, "set", json!({ "admission": limit % 3 }))),
            _ => drop(self.command(n, "set", json!({ "mode": mode }))),
        }
    }

    /// Makes an origin fail, or work again.
    fn fail(&mut self, n: usize) {
        let volume = &mut self.volumes[n];
        let disk = &volume.origin.disk;
        let operations = [Operation::Read, Operation::Write, Operation::Sync];
        let operation = self.random.choose(&operations);
        let times = 1 + self.random.below(3);
        match self.random.below(6) {
            0 => {
                volume.origin.crash();
                volume.model.doubt();
            }
            1 => {
                let fault = Fault::new(Operation::Sync, Effect::Lose);
                disk.inject(fault.times(times));
                volume.is_faulty = true;
                volume.model.doubt();
            }
            2 => {
                let fault = Fault::new(operation, Effect::Error(EIO));
                disk.inject(fault.times(times));
                volume.is_faulty = true;
                if operation == Operation::Sync {
                    volume.model.doubt();
                }
            }
            _ => {
                disk.mend();
                volume.is_faulty = false;
            }
        }
    }

    fn resize(&mut self, n: usize) {
        let volume = &mut self.volumes[n];
        let size = volume.origin.disk.size() as usize + 3 * SECTOR;
        volume.origin.disk.resize(size, 0);
        let resized = self.command(n, "resize", json!({}));
        let has = self.process.state(self.volumes[n].name)["export"].clone();
        assert!(has.is_string());
        if resized.get("error").is_none() {
            self.volumes[n].model.grow(size);
        } else {
            assert!(
                self.volumes[n].is_faulty || self.volumes[n].model.is_in_doubt(),
                "{resized}"
            );
            let before = self.volumes[n].model.sectors() * SECTOR;
            self.volumes[n].origin.disk.resize(before, 0);
        }
    }

    fn detach(&mut self, n: usize) {
        self.volumes[n].client = None;
        let losses = self.losses(n);
        let detached = self.command(n, "detach", json!({}));
        let volume = &mut self.volumes[n];
        if detached.get("error").is_some() {
            let is_known = volume.is_faulty || volume.model.is_in_doubt();
            assert!(is_known, "{detached}");
            return;
        }
        volume.origin.disk.evict();
        // Its losses end with it, and what is known to be lost need not be durable.
        volume.model.accept();
        match losses.is_empty() {
            true => volume.model.flush(),
            false => volume.model.doubt(),
        }
        volume.origin.disk.mend();
        volume.is_faulty = false;
        let mode = self.random.choose(&MODES);
        self.process.attach(volume.name, &volume.origin, mode);
    }

    /// Ends the process, perhaps with origins, and starts another one.
    fn kill(&mut self) {
        for volume in &mut self.volumes {
            volume.client = None;
            if self.random.once_in(3) {
                volume.origin.crash();
                volume.model.doubt();
            }
            // A start needs its origins for what they lack.
            volume.origin.disk.mend();
            volume.is_faulty = false;
        }
        self.process = Process::start(&self.folder, self.processes);
        self.processes += 1;
    }

    /// Has all durable at the end, and compares it with what the origins have.
    fn end(&mut self) {
        for n in 0..self.volumes.len() {
            self.volumes[n].origin.disk.mend();
            self.volumes[n].is_faulty = false;
            while !self.flush(n) {
                self.make_good(n);
            }
        }
        self.volumes.iter().for_each(|volume| volume.origin.crash());
        self.kill();
        for n in 0..self.volumes.len() {
            let length = self.volumes[n].model.sectors() * SECTOR;
            let data = self.client(n).read(0, length).unwrap();
            self.volumes[n].model.read(0, &data);
            let flushed = self.client(n).flush();
            assert!(flushed.is_ok(), "{flushed:?}");
            self.volumes[n].client = None;
            let detached = self.command(n, "detach", json!({}));
            assert_eq!(None, detached.get("error"));
            assert!(data == self.volumes[n].origin.disk.content());
        }
    }
}

#[test]
fn no_flush_lies_and_nothing_older_is_read_whatever_comes_between() {
    campaign("SSDCACHE_HISTORY", 20_261_128, 8, |random| {
        let mut history = History::new(random);
        for _ in 0..STEPS {
            history.step();
        }
        history.end();
    });
}
