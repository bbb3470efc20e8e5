//! A setting: its key, its default and its description.

/// One setting, as the reference describes it.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// `section.key`, or a key at the top level of `config.toml`.
    pub key: &'static str,
    pub default: &'static str,
    /// The smallest number that is allowed; 0 for settings that are not numbers.
    pub min: i64,
    pub help: &'static str,
    /// The variables of an earlier program, which count if `HOB_…` is unset.
    pub earlier: &'static [&'static str],
}

impl Setting {
    /// Returns `HOB_SECTION_KEY`, the name of the setting's own variable.
    pub fn environment_name(&self) -> String {
        format!("HOB_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Returns all variables that give the setting a value; the first one that is set counts.
    pub fn environment_names(&self) -> Vec<String> {
        let earlier = self.earlier.iter().map(|name| (*name).to_owned());
        std::iter::once(self.environment_name()).chain(earlier).collect()
    }
}
