//! Fills: cancelled, promoted, and behind requests.

use super::*;

#[test]
fn a_cancelled_delivery_ends_at_once_and_is_resumed() {
    let all = Hosts::new();
    all.repository.set_rate(Some(2e6)).unwrap();
    let handle = Handle::default();
    let watch = |progress: Progress| {
        if progress.done > progress.total / 4 {
            handle.cancel();
        }
        true
    };
    let order = all.wan_order("h1");
    let outcome = all.host("h1").deliver(&order, &handle, Some(&watch));
    assert!(matches!(outcome, Err(TransferError::Cancelled { .. })));
    for host in &all.hosts {
        assert_eq!(host.stats().claims, 0);
    }
    all.repository.set_rate(None).unwrap();
    let (wan, _) = all.moved("h1", &order);
    assert!(wan < all.size(), "{wan}");
}

#[test]
fn a_watch_that_refuses_ends_the_delivery_before_the_wan_is_used() {
    let all = Hosts::new();
    let watch = |progress: Progress| !progress.over_wan;
    let outcome = all
        .host("h1")
        .deliver(&all.fill_order("h1"), &Handle::default(), Some(&watch));
    assert!(matches!(outcome, Err(TransferError::Cancelled { .. })));
    assert_eq!(all.repository.stats().events(Event::Request), 0);
}

/// Lets a failed test end before a slow fill does.
struct CancelOnPanic<'a>(&'a Handle);

impl Drop for CancelOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// Run a fill of h1 that would take hours at its rate, and something else during it.
fn slow_fill(all: &Hosts, during: impl FnOnce(&Handle)) {
    let handle = Handle::default();
    let order = Order {
        rate: Some(1000.0),
        ..all.fill_order("h1")
    };
    std::thread::scope(|scope| {
        let fill = scope.spawn(|| all.host("h1").deliver(&order, &handle, None).unwrap());
        until("the fill has begun", || {
            all.repository.stats().events(Event::Request) > 0
        });
        let ended = CancelOnPanic(&handle);
        during(&handle);
        drop(ended);
        assert_eq!(fill.join().unwrap().source, Some(0));
        assert_eq!(std::fs::read(&order.dest).unwrap(), all.bytes);
    });
}

#[test]
fn a_promoted_fill_is_limited_no_longer() {
    let all = Hosts::new();
    slow_fill(&all, Handle::promote);
}

#[test]
fn a_fill_gives_way_to_a_request_and_resumes() {
    let all = Hosts::new();
    let other = all
        .site
        .hold("repo", &Bytes(11).take(5 * LEAF_SIZE as usize));
    slow_fill(&all, |handle| {
        let request = Order {
            id: other.key.id_hex(),
            manifest: Some(other.manifest_path.clone()),
            dest: all.site.path("h1").join("other"),
            ..all.wan_order("h1")
        };
        let watch = |progress: Progress| {
            if progress.done > 0 {
                until("the fill is off the WAN", || {
                    all.host("h1").stats().in_flight == 1
                });
            }
            true
        };
        let delivered = all
            .host("h1")
            .deliver(&request, &Handle::default(), Some(&watch))
            .unwrap();
        assert_eq!(delivered.source, Some(0));
        handle.promote();
    });
}
