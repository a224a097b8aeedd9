//! Recipes, by which a qcow2 file is created again, as they are in patches and forms.

#![no_main]

use diffcache_qcow2::recipe::Recipe;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(recipe) = Recipe::decode(data) {
        let _ = (recipe.stored(), recipe.needs_base_file());
        if let Some(sequence) = &recipe.sequence {
            let _ = sequence.places(&recipe.layout, &recipe.streams);
        }
    }
});
