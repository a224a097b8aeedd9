//! Runs of blocks laid over others.

use crate::store::nodes::{push_run, Run};

/// Later runs win; what `resize` put first gives way to what was read.
pub(super) fn settle(runs: Vec<Run>) -> Vec<Run> {
    let ordered = runs.windows(2).all(|pair| pair[0].end() <= pair[1].start);
    match runs.split_first() {
        Some((first, rest)) if !ordered => overlay(std::slice::from_ref(first), rest),
        _ => runs,
    }
}

/// `upper` laid over `lower`; both ascending.
pub fn overlay(lower: &[Run], upper: &[Run]) -> Vec<Run> {
    let mut out = Vec::with_capacity(lower.len() + upper.len());
    let mut upper = upper.iter().peekable();
    for low in lower {
        let mut at = low.start;
        while let Some(up) = upper.peek() {
            if up.start >= low.end() {
                break;
            }
            if let Some(run) = low.clip(at, up.start) {
                push_run(&mut out, run);
            }
            push_run(&mut out, **up);
            at = at.max(up.end());
            upper.next();
        }
        if let Some(run) = low.clip(at, low.end()) {
            push_run(&mut out, run);
        }
        // An upper run that covers the end of this run hides the start of the next, too.
        if at > low.end() {
            return overlay_rest(lower, out, upper.copied().collect());
        }
    }
    for up in upper {
        push_run(&mut out, *up);
    }
    out
}

/// The rest of an overlay, after an upper run that reached beyond its lower one.
fn overlay_rest(lower: &[Run], mut out: Vec<Run>, upper: Vec<Run>) -> Vec<Run> {
    let at = out.last().map_or(0, Run::end);
    let rest: Vec<Run> = lower
        .iter()
        .filter_map(|run| run.clip(at, u64::MAX))
        .collect();
    for run in overlay(&rest, &upper) {
        push_run(&mut out, run);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::nodes::BlockRef;
    use proptest::prelude::*;

    fn some_runs() -> impl Strategy<Value = Vec<Run>> {
        proptest::collection::vec((0u64..5, 1u64..9, 0u32..3), 0..8).prop_map(|parts| {
            let (mut out, mut at) = (Vec::new(), 0);
            for (gap, len, pack) in parts {
                let start = at + gap;
                let at_pack = BlockRef::Stored { pack, slot: 7 };
                out.push(Run {
                    start,
                    len,
                    at: at_pack,
                });
                at = start + len;
            }
            out
        })
    }

    fn paint(runs: &[Run], canvas: &mut [Option<BlockRef>]) {
        for run in runs {
            for i in 0..run.len {
                canvas[(run.start + i) as usize] = Some(run.at.plus(i));
            }
        }
    }

    proptest! {
        #[test]
        fn overlays_are_what_painting_gives(lower in some_runs(), upper in some_runs()) {
            let mut wanted = vec![None; 128];
            paint(&lower, &mut wanted);
            paint(&upper, &mut wanted);
            let laid = overlay(&lower, &upper);
            prop_assert!(laid.windows(2).all(|pair| pair[0].end() <= pair[1].start));
            let mut got = vec![None; 128];
            paint(&laid, &mut got);
            prop_assert_eq!(got, wanted);
        }
    }
}
