//! Reads a disk at random through vhost-user, as a guest does: `guest SOCKET BLOCKS DEPTH SECONDS`. Prints
//! reads per second, and this process' microseconds of CPU for each; stays connected until standard input
//! ends.

use std::path::Path;
use std::time::{Duration, Instant};

use diffcache_vhost::frontend::{kind, Guest, Kept};
use rustix::time::{clock_gettime, ClockId};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, blocks, depth, seconds] = &arguments[..] else {
        return Err("expected SOCKET BLOCKS DEPTH SECONDS".into());
    };
    let (blocks, depth) = (blocks.parse::<u64>()?, depth.parse::<usize>()?);
    let mut guest = Guest::connect(Path::new(socket), Kept::new()?)?;
    let mut random = 1u64;
    let mut begin = |guest: &mut Guest| {
        // A linear congruential generator, of which the high bits are used.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        guest.begin_request(kind::IN, (random >> 33) % blocks * 8, 4096)
    };
    let cpu = || clock_gettime(ClockId::ProcessCPUTime);
    let (started, spent) = (Instant::now(), cpu());
    let end = Duration::from_secs_f64(seconds.parse()?);
    let mut done = 0u64;
    for _ in 0..depth {
        begin(&mut guest)?;
    }
    guest.kick()?;
    while started.elapsed() < end {
        let mut some = 0;
        while let Some((_, status)) = guest.answer()? {
            if status != 0 {
                return Err(format!("a read failed: {status}").into());
            }
            begin(&mut guest)?;
            some += 1;
        }
        done += some;
        guest.kick()?;
        if some == 0 {
            guest.wait()?;
        }
    }
    let now = cpu();
    let seconds = (now.tv_sec - spent.tv_sec) as f64 + (now.tv_nsec - spent.tv_nsec) as f64 / 1e9;
    let rate = done as f64 / started.elapsed().as_secs_f64();
    println!(
        r#"{{"rate": {rate:.0}, "reads": {done}, "cpu_us": {:.3}}}"#,
        seconds / done as f64 * 1e6
    );
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
