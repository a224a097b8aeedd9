//! Writes valid inputs of each target below a directory, for a fuzzer to begin with.
//!
//! usage: cargo run --example seeds -- DIRECTORY

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use diffcache_core::compressed;
use diffcache_core::manifest::Manifest;
use diffcache_core::patch::format::HEADER_LEN;
use diffcache_core::patch::{create, info, CreateOptions};
use diffcache_fuzz::{base, manifest, noise, target, task};
use diffcache_prefetch::counts::Version;
use diffcache_prefetch::SiteCounts;
use diffcache_qcow2::recipe::describe;
use diffcache_qcow2::Qcow2Source;
use diffcache_versions::store::base::BaseIndex;
use diffcache_base::varint;
use diffcache_versions::store::crypt::Cipher;
use diffcache_versions::store::hooks::{encode, Hook};
use diffcache_versions::store::nodes::{encode_inner, encode_leaf, BlockRef, NodeRef, Run, FANOUT, HEIGHT};
use diffcache_versions::store::pack_index::{Frame, PackIndex};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let root = std::env::args().nth(1).ok_or("usage: seeds DIRECTORY")?;
    let root = Path::new(&root);
    let write = |target: &str, name: &str, bytes: &[u8]| -> io::Result<()> {
        let dir = root.join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), bytes)
    };
    for (name, text) in requests() {
        write("request", name, text.as_bytes())?;
    }
    for (name, text) in RESPONSES {
        write("response", name, text.as_bytes())?;
    }
    for (name, image) in [
        ("data", target()),
        ("empty", Vec::new()),
        ("zeroes", base()),
    ] {
        write("manifest", name, &encoded(&manifest(&image))?)?;
    }
    write("patch", "block", &sections()?)?;
    for (name, bits) in [("small", 9), ("large", 12)] {
        write("qcow2", name, &qcow2(bits))?;
        write("recipe", name, &recipe(&qcow2(bits))?)?;
    }
    for name in ["ext2-files", "ext4-files", "xfs"] {
        let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../filesystems/tests/data")
            .join(format!("{name}.raw.zst"));
        let image = zstd::decode_all(&*fs::read(packed)?)?;
        write("filesystem", name, &image)?;
        write("arriving", name, &arriving(&image))?;
    }
    write("hints", "counts", &hints())?;
    write("referrals", "request", &referral())?;
    let id = "0a".repeat(32);
    for (name, text) in [
        ("mount", format!("mount {id}")),
        ("done", "done /m".to_owned()),
    ] {
        write("mounter", name, text.as_bytes())?;
    }
    for (name, bytes) in others()? {
        write(name, "valid", &bytes)?;
    }
    let bodies = [index(), base_index()?, map(), hooks()];
    for (name, body) in (0u8..).zip(bodies) {
        write("store", &name.to_string(), &[&[name], &body[..]].concat())?;
    }
    Ok(())
}

/// Inputs of targets that have one.
fn others() -> Outcome<Vec<(&'static str, Vec<u8>)>> {
    let greeting = b"NBDMAGICIHAVEOPT\0\x03";
    let numbers = [0; 72];
    Ok(vec![
        ("device", [1, 0, 32, 0, 5, 0, 0, 0].repeat(4)),
        ("nbd_server", [&[2][..], &[2; 64]].concat()),
        ("nbd_client", [&[0][..], greeting].concat()),
        ("journal", [&[72, 0][..], &numbers].concat()),
        ("compressed", compressed_form()?),
    ])
}

/// The index of the compressed form of the target's image, behind the form's length and its own.
fn compressed_form() -> Outcome<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let [content, form] = ["content", "form"].map(|name| dir.path().join(name));
    let image = noise(5, 3_300_000);
    fs::write(&content, &image)?;
    compressed::create(&content, &manifest(&image), &form, 3, &task())?;
    let form = fs::read(form)?;
    let index = &form[..96 + 4 * 4];
    let length = (index.len() as u16).to_le_bytes();
    let total = (form.len() as u64).to_le_bytes();
    Ok([&total[..], &length, index, &form[index.len()..][..1000]].concat())
}

fn requests() -> Vec<(&'static str, String)> {
    let id = "0123456789abcdef".repeat(4);
    let signed = format!(
        "Host: h:1\r\nAuthorization: DiffCache site:1700000000:{}:{id}:{}\r\n",
        "ab".repeat(16),
        "0123456789abcdef".repeat(2)
    );
    vec![
        (
            "get",
            format!(
                "GET /v1/objects/templates/{id} HTTP/1.1\r\n{signed}Range: bytes=0-65535\r\nX-DiffCache-Hold: 20\r\n\r\n"
            ),
        ),
        (
            "claim",
            format!(
                "POST /v1/claims/patches/{id} HTTP/1.1\r\n{signed}Content-Length: 22\r\n\r\n{{\"holder\": \"host-7\"}}\r\n"
            ),
        ),
        (
            "health",
            "HEAD /v1/health HTTP/1.0\r\nConnection: close\r\nRange: bytes=-5\r\n\r\n".to_owned(),
        ),
    ]
}

const RESPONSES: [(&str, &str); 2] = [
    (
        "part",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 2-4/10\r\nX-DiffCache-State: arriving\r\n\r\nabc",
    ),
    (
        "error",
        "HTTP/1.1 404 Not Found\r\nX-DiffCache-Boot: 0123456789abcdef0123456789abcdef\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    ),
];

/// An image whose first blocks arrive one after the other.
fn arriving(image: &[u8]) -> Vec<u8> {
    let order: Vec<u8> = (0..64u16).flat_map(u16::to_le_bytes).collect();
    [&(order.len() as u16).to_le_bytes()[..], &order, image].concat()
}

/// A request with a host's counts, behind its length.
fn hints() -> Vec<u8> {
    let mut host = SiteCounts::new(1, 0..3, 7);
    (0..20).for_each(|chunk| host.count(chunk * 9, 2, 1000));
    let text = host.ask(Some(Version::default())).encode();
    [&(text.len() as u16).to_le_bytes()[..], &text].concat()
}

/// A request for a range that may be referred.
fn referral() -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend(262_144u64.to_le_bytes());
    bytes.extend(262_144u64.to_le_bytes());
    bytes.extend(b"\x02h1");
    bytes
}

fn encoded(manifest: &Manifest) -> Outcome<Vec<u8>> {
    let mut out = Vec::new();
    manifest.write_to(&mut out)?;
    Ok(out)
}

/// The sections of a patch in the clear, as the target `patch` takes them.
fn sections() -> Outcome<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("patch");
    create(&base(), &target(), &path, &CreateOptions::default())?;
    let patch = fs::read(path)?;
    let header = info(&patch)?.header;
    let (before, meta) = patch.split_at(header.meta_offset as usize);
    let (map, rest) = meta.split_at(header.map_len as usize);
    let (frames, leaves) = rest.split_at(header.frames_len as usize);
    let mut out = Vec::new();
    for number in [
        header.base_size,
        header.target_size,
        header.runs,
        header.frames,
    ] {
        out.extend(number.to_le_bytes());
    }
    let data = &before[HEADER_LEN as usize..];
    for part in [
        data,
        &zstd::decode_all(map)?,
        &zstd::decode_all(frames)?,
        leaves,
    ] {
        out.extend(u16::try_from(part.len())?.to_le_bytes());
        out.extend(part);
    }
    Ok(out)
}

/// A qcow2 image of 32 clusters: each third is zero, and every other one of the rest is compressed.
fn qcow2(bits: usize) -> Vec<u8> {
    let cluster = 1 << bits;
    let put = |image: &mut Vec<u8>, at: usize, value: u64| {
        image[at..at + 8].copy_from_slice(&value.to_be_bytes())
    };
    let mut image = vec![0; 5 * cluster];
    image[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    put(&mut image, 16, bits as u64);
    put(&mut image, 24, 32 * cluster as u64);
    put(&mut image, 36, 1 << 32);
    put(&mut image, 40, 3 * cluster as u64);
    put(&mut image, 48, cluster as u64);
    image[56..60].copy_from_slice(&1u32.to_be_bytes());
    image[96..104].copy_from_slice(&[0, 0, 0, 4, 0, 0, 0, 104]);
    put(&mut image, cluster, 2 * cluster as u64);
    put(&mut image, 3 * cluster, (4 * cluster as u64) | (1 << 63));
    for index in (0..32).filter(|index| index % 3 != 2) {
        let content = noise(index as u64 + 1, cluster);
        let entry = if index % 2 == 0 {
            let offset = image.len() as u64;
            let len = cluster as u16;
            // A stored block of deflate.
            image.push(1);
            image.extend(len.to_le_bytes());
            image.extend((!len).to_le_bytes());
            image.extend(content);
            let bytes = offset % 512 + cluster as u64 + 5;
            let sectors = bytes.div_ceil(512) - 1;
            (1 << 62) | (sectors << (62 - (bits as u64 - 8))) | offset
        } else {
            image.resize(image.len().next_multiple_of(cluster), 0);
            let offset = image.len() as u64;
            image.extend(content);
            offset | (1 << 63)
        };
        put(&mut image, 4 * cluster + index * 8, entry);
    }
    image
}

fn recipe(image: &[u8]) -> Outcome<Vec<u8>> {
    let source = Qcow2Source::open(Arc::new(image.to_vec()))?;
    let mut description = describe(&source, None, &task())?;
    description.add_sequence(&manifest(image));
    Ok(description.recipe.encode(&description.placed))
}

/// What the index of a pack with two frames has before the names.
fn index() -> Vec<u8> {
    let mut index = PackIndex::new(1, 0, 4096, false);
    for (first, count, len) in [(0, 3, 9000), (3, 1, 4096)] {
        index.frames.push(Frame {
            first,
            count,
            offset: index.data_len,
            len,
            raw: count == 1,
            check: [first as u8; 16],
        });
        index.data_len += u64::from(len);
    }
    let names: Vec<_> = (0..4).map(|n| [n; 24]).collect();
    index.slots = Some(vec![0, 2, 3, 5]);
    index.slots_total = 7;
    let mut head = body(index.encode(&names));
    head.truncate(head.len() - names.as_flattened().len());
    head
}

fn base_index() -> Outcome<Vec<u8>> {
    let cipher = Cipher::new(None);
    let index = BaseIndex::create(&target(), 4096, &cipher, &task())?;
    Ok(body(index.encode()))
}

/// What a file of hooks has before them.
fn hooks() -> Vec<u8> {
    let mut out = Vec::new();
    let hooks = (0..1500).map(|name| Hook {
        name,
        pack: 1,
        slot: 5,
    });
    encode(&hooks.collect::<Vec<_>>(), &mut out).expect("memory suffices");
    out[..16 + 2 * 24].to_vec()
}

/// The nodes of a map, as the target `store` takes them: their count, lengths and bytes.
fn map() -> Vec<u8> {
    let stored = BlockRef::Stored { pack: 1, slot: 5 };
    let runs = [
        (0, 100, BlockRef::Zero),
        (100, 12, stored),
        (112, 400, BlockRef::Base),
    ];
    let leaf = encode_leaf(&runs.map(|(start, len, at)| Run { start, len, at }));
    let mut children = vec![NodeRef::Base; FANOUT as usize];
    let mut nodes = vec![leaf];
    for level in 1..=HEIGHT {
        children[0] = NodeRef::Node {
            map: 1,
            index: level - 1,
        };
        nodes.push(encode_inner(level, &children));
    }
    let mut out = (nodes.len() as u64).to_le_bytes().to_vec();
    for node in &nodes {
        varint::put(&mut out, node.len() as u64);
    }
    out.extend(nodes.concat());
    out
}

/// A file without the checksum at its end.
fn body(mut file: Vec<u8>) -> Vec<u8> {
    file.truncate(file.len() - 32);
    file
}
