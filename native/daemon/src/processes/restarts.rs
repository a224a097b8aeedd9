//! Pauses before a process that ends again and again is started once more.

use std::time::Duration;

/// Pauses, each twice as long as the last one.
pub struct Pauses {
    first: Duration,
    next: Duration,
}

impl Pauses {
    /// Begin with a pause.
    pub fn new(first: Duration) -> Pauses {
        Pauses { first, next: first }
    }

    /// Return the next pause, at most the longest.
    pub fn take(&mut self, longest: Duration) -> Duration {
        let pause = self.next.min(longest);
        self.next = (pause * 2).min(longest);
        pause
    }

    /// Begin anew, as the process lived.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_twice_as_long_up_to_the_longest() {
        let ms = Duration::from_millis;
        let mut pauses = Pauses::new(ms(10));
        let found = [(); 5].map(|()| pauses.take(ms(35)));
        assert_eq!([10, 20, 35, 35, 35].map(ms), found);
        // Another longest pause holds at once.
        assert_eq!([35, 70].map(ms), [(); 2].map(|()| pauses.take(ms(1000))));
        assert_eq!(ms(5), pauses.take(ms(5)));
        pauses.reset();
        assert_eq!(ms(10), pauses.take(ms(35)));
    }
}
