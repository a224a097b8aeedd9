//! Patches whose hashes are right and whose sections are anything.

#![no_main]

use std::sync::OnceLock;

use diffcache_core::manifest::{Manifest, LEAF_SIZE};
use diffcache_core::patch::format::Header;
use diffcache_core::patch::{create, info, target_manifest, verify, CreateOptions, PatchView};
use diffcache_core::source::ReadAt;
use diffcache_fuzz::{base, forge, manifest, target, task, Strict};
use libfuzzer_sys::fuzz_target;

/// Larger targets are opened, and not built: that takes its time.
const BUILT: u64 = 4 << 20;

struct Template {
    header: Header,
    base: Vec<u8>,
    manifest: Manifest,
    target: Manifest,
}

static TEMPLATE: OnceLock<Template> = OnceLock::new();

fn template() -> &'static Template {
    TEMPLATE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("patch");
        let (base, target) = (base(), target());
        create(&base, &target, &path, &CreateOptions::default()).expect("a patch");
        let patch = std::fs::read(path).expect("the patch");
        Template {
            header: info(&patch).expect("a valid patch").header,
            manifest: manifest(&base),
            target: manifest(&target),
            base,
        }
    })
}

fuzz_target!(|data: &[u8]| {
    let template = template();
    let forged = forge(template.header, data);
    let (patch, base) = (Strict(&forged), Strict(&template.base));
    let Ok(known) = info(&patch) else { return };
    let _ = target_manifest(&template.manifest, &patch, &task());
    if let Ok(view) = PatchView::open(&base, &patch, None) {
        let size = view.len();
        for from in [0, size / 2, size.saturating_sub(5000)] {
            let mut buf = vec![0; (size - from).min(2 * LEAF_SIZE) as usize];
            let _ = view.read(&mut buf, from);
        }
    }
    if known.header.target_size > BUILT {
        return;
    }
    if let Ok(built) = verify(&base, &patch, &task()) {
        assert!(built.manifest == template.target);
    }
});
