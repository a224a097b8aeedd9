//! Threads that want the same chunks, in many schedules: each is decided by a seed, see [`sync`](diffcache_base::sync).

use diffcache_base::sync::atomic::AtomicU32;
use diffcache_base::sync::{chance, explore, measured, point, thread};

use super::*;

const CHUNKS: u64 = 3;
const THREADS: usize = 4;
/// Longer than any schedule.
const LONG: Duration = Duration::from_secs(3600);

/// What is there of each chunk.
#[derive(Default)]
struct Image {
    flights: Flights,
    /// Threads that fetch it directly, and by way of the site.
    fetching: [[AtomicU32; 2]; CHUNKS as usize],
    is_local: [AtomicBool; CHUNKS as usize],
}

impl Image {
    /// Fetches a chunk, which no other thread does in the same way. Whether that succeeded.
    fn fetch(&self, chunk: u64, reach: Reach) -> bool {
        let fetching = &self.fetching[chunk as usize][usize::from(reach == Reach::Site)];
        assert_eq!(0, fetching.fetch_add(1, Ordering::SeqCst), "fetched twice");
        point();
        let is_there = measured(true);
        fetching.fetch_sub(1, Ordering::SeqCst);
        if is_there {
            self.is_local[chunk as usize].store(true, Ordering::SeqCst);
        }
        is_there
    }

    fn is_local(&self, chunk: u64) -> bool {
        self.is_local[chunk as usize].load(Ordering::SeqCst)
    }

    /// Fetches chunks, and waits for those that others fetch.
    fn want(&self, run: Range<u64>, reach: Reach) {
        let Begun {
            own: mut landing,
            mut joined,
        } = self.flights.begin(run, reach, Purpose::Demand);
        let mut failed = Vec::new();
        for chunk in landing.chunks() {
            match self.fetch(chunk, reach) {
                true => self.arrive(&mut landing, chunk),
                false => failed.push(chunk),
            }
        }
        if reach == Reach::Site {
            let turned = landing.turn_direct(failed);
            for chunk in turned.own {
                if self.fetch(chunk, Reach::Direct) {
                    self.arrive(&mut landing, chunk);
                }
            }
            joined.extend(turned.joined);
        }
        drop(landing);
        for (chunk, flight) in joined {
            let landed = flight.wait_for(LONG, || self.is_local(chunk));
            let is_given_up = matches!(landed, Err(ChunkError::Abandoned | ChunkError::TooSlow));
            assert!(is_given_up || landed.is_ok() && self.is_local(chunk));
        }
    }

    fn arrive(&self, landing: &mut Landing, chunk: u64) {
        landing.note_arrival(chunk..chunk + 1);
        landing.set(chunk, Ok(Chunk::Local));
    }
}

/// Seen failing without the notification of a landing: threads wait for ever; and where a fetch that turns does not look for direct ones: a chunk is
/// fetched twice.
#[test]
fn a_chunk_is_fetched_once_and_nobody_waits_for_ever_in_every_schedule() {
    explore(1000, || {
        let image = Arc::new(Image::default());
        let want = |_| {
            let (image, numbers) = (image.clone(), chance());
            let first = numbers % CHUNKS;
            let reach = [Reach::Direct, Reach::Site][(numbers >> 8 & 1) as usize];
            thread::spawn(move || image.want(first..CHUNKS, reach))
        };
        let threads: Vec<_> = (0..THREADS).map(want).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!((0..CHUNKS).all(|chunk| !image.flights.has(chunk)));
    });
}
