//! Which blocks a volume's cache takes in.

/// Sequential streams of a volume that are distinguished.
const STREAMS: usize = 16;

/// Recognises requests that continue one another, such as those of a scan or a backup.
#[derive(Debug, Clone, Copy)]
pub struct Streams {
    /// The latest first.
    streams: [Stream; STREAMS],
    cutoff: u64,
}

/// Requests of which each begins where the one before ended.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    end: u64,
    bytes: u64,
}

impl Streams {
    /// Requests bypass the cache after `cutoff` bytes in sequence; 0: never.
    #[must_use]
    pub fn new(cutoff: u64) -> Self {
        Self {
            streams: [Stream::default(); STREAMS],
            cutoff,
        }
    }

    /// Changes after how many bytes in sequence requests bypass the cache; 0: never.
    pub fn set_cutoff(&mut self, cutoff: u64) {
        self.cutoff = cutoff;
    }

    /// Notes a request, and returns whether it bypasses the cache.
    pub fn bypass(&mut self, offset: u64, length: u64) -> bool {
        if self.cutoff == 0 {
            return false;
        }
        let continues = |stream: &Stream| stream.bytes > 0 && stream.end == offset;
        let found = self.streams.iter().position(continues);
        let place = found.unwrap_or(STREAMS - 1);
        let before = found.map_or(0, |n| self.streams[n].bytes);
        let bytes = before.saturating_add(length);
        self.streams.copy_within(..place, 1);
        self.streams[0] = Stream {
            end: offset.saturating_add(length),
            bytes,
        };
        bytes > self.cutoff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_bypasses_the_cache_after_the_cutoff() {
        let mut streams = Streams::new(8);
        let bypassed: Vec<bool> = (0..4).map(|n| streams.bypass(n * 4, 4)).collect();
        assert_eq!(vec![false, false, true, true], bypassed);
    }

    #[test]
    fn random_requests_never_do() {
        let mut streams = Streams::new(8);
        assert!((0..1000).all(|n| !streams.bypass(n * 7919 % 1000, 4)));
    }

    #[test]
    fn sixteen_interleaved_sequences_are_recognised_and_a_seventeenth_is_not() {
        for (volumes, expected) in [(16, true), (17, false)] {
            let mut streams = Streams::new(8);
            let mut bypassed = false;
            for step in 0..10 {
                for n in 0..volumes {
                    bypassed = streams.bypass(n * 1_000_000 + step * 4, 4);
                }
            }
            assert_eq!(expected, bypassed, "{volumes} sequences");
        }
    }

    #[test]
    fn without_a_cutoff_nothing_bypasses() {
        let mut streams = Streams::new(0);
        assert!((0..1000).all(|n| !streams.bypass(n * 1024, 1024)));
    }
}
