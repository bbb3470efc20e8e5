//! The types that a setting can have, and how a value of each is read and checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hob_agents::claude::HistoryMode;
use hob_store::StoreUrl;
use hob_transcript::{RECORDS, RecordedClient};
use toml::{Table, Value};

use super::paths;
use super::setting::Setting;
use super::source::{Row, SettingsError, Source};

/// A type that a setting can have. Errors say what a valid value is.
pub trait SettingValue: Sized {
    /// Reads a flag, a variable or a default.
    fn parse(text: &str) -> Result<Value, String> {
        Ok(Value::String(text.to_owned()))
    }

    /// Checks a value and converts it.
    fn convert(given: &Given<'_>) -> Result<Self, String>;

    /// Returns the value as `hob doctor` prints it.
    fn show(&self, value: &Value) -> String {
        value.to_string()
    }
}

/// A value as it was found, before it is checked.
pub struct Given<'a> {
    value: Value,
    setting: Setting,
    source: Source,
    environment: &'a BTreeMap<String, String>,
}

impl Given<'_> {
    fn text(&self) -> Result<&str, String> {
        self.value.as_str().ok_or_else(|| "must be a string in quotes".to_owned())
    }

    fn count(&self) -> Result<u64, String> {
        let number = self.value.as_integer().ok_or("must be a whole number")?;
        match u64::try_from(number) {
            Ok(count) if number >= self.setting.min => Ok(count),
            _ => Err(format!("must be at least {}", self.setting.min)),
        }
    }

    fn texts(&self) -> Option<Vec<&str>> {
        self.value.as_array()?.iter().map(Value::as_str).collect()
    }
}

/// Finds the value of each setting: the first of flag, environment, file and default that gives
/// one.
pub struct ValueReader<'a> {
    pub flags: &'a [(&'static str, String)],
    pub environment: &'a BTreeMap<String, String>,
    /// The contents of `config.toml`. A setting is removed once it is read, so that unknown keys
    /// remain.
    pub file: Table,
    /// One row per setting that was read.
    pub rows: Vec<Row>,
}

impl ValueReader<'_> {
    /// Reads one setting, and notes its value and source in a row.
    pub fn read<T: SettingValue>(&mut self, setting: Setting) -> Result<T, SettingsError> {
        let (found, source) = self.find::<T>(&setting);
        let bad = |problem, source| SettingsError::BadValue {
            key: setting.key.to_owned(),
            origin: source,
            problem,
        };
        let value = found.map_err(|problem| bad(problem, source.clone()))?;
        let given = Given { value, setting, source, environment: self.environment };
        let value = T::convert(&given).map_err(|problem| bad(problem, given.source.clone()))?;
        let shown = value.show(&given.value);
        self.rows.push(Row { key: setting.key.to_owned(), value: shown, source: given.source });
        Ok(value)
    }

    fn find<T: SettingValue>(&mut self, setting: &Setting) -> (Result<Value, String>, Source) {
        let from_file = take(&mut self.file, setting.key);
        let names = setting.environment_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Some((_, text)) = self.flags.iter().find(|(key, _)| *key == setting.key) {
            (T::parse(text), Source::Flag)
        } else if let Some((text, source)) = paths::from_environment(self.environment, &names) {
            (T::parse(&text), source)
        } else if let Some(value) = from_file {
            (Ok(value), Source::File)
        } else {
            (T::parse(setting.default), Source::Default)
        }
    }
}

/// Takes `section.key` out of a table.
fn take(table: &mut Table, key: &str) -> Option<Value> {
    match key.split_once('.') {
        None => table.remove(key),
        Some((section, rest)) => take(table.get_mut(section)?.as_table_mut()?, rest),
    }
}

fn parse_count(text: &str) -> Result<Value, String> {
    let number = text.trim().parse();
    number.map(Value::Integer).map_err(|_| format!("{text:?} is not a whole number"))
}

impl SettingValue for bool {
    fn parse(text: &str) -> Result<Value, String> {
        match text {
            "true" | "1" => Ok(Value::Boolean(true)),
            "false" | "0" => Ok(Value::Boolean(false)),
            _ => Err(format!("{text:?} is neither true nor false")),
        }
    }

    fn convert(given: &Given<'_>) -> Result<bool, String> {
        given.value.as_bool().ok_or_else(|| "must be true or false".to_owned())
    }
}

impl SettingValue for String {
    fn convert(given: &Given<'_>) -> Result<String, String> {
        given.text().map(str::to_owned)
    }
}

impl SettingValue for u64 {
    fn parse(text: &str) -> Result<Value, String> {
        parse_count(text)
    }

    fn convert(given: &Given<'_>) -> Result<u64, String> {
        given.count()
    }
}

impl SettingValue for usize {
    fn parse(text: &str) -> Result<Value, String> {
        parse_count(text)
    }

    fn convert(given: &Given<'_>) -> Result<usize, String> {
        usize::try_from(given.count()?).map_err(|_| "is too large".to_owned())
    }
}

/// Longer durations could not be added to a time.
const MAX_DURATION_SECS: u64 = 10 * 365 * 24 * 3600;

/// A duration is written as a whole number of seconds.
impl SettingValue for Duration {
    fn parse(text: &str) -> Result<Value, String> {
        parse_count(text)
    }

    fn convert(given: &Given<'_>) -> Result<Duration, String> {
        match given.count()? {
            seconds if seconds > MAX_DURATION_SECS => {
                Err(format!("must be at most {MAX_DURATION_SECS} (ten years)"))
            }
            seconds => Ok(Duration::from_secs(seconds)),
        }
    }
}

/// An amount of money; any number that is not negative.
impl SettingValue for f64 {
    fn parse(text: &str) -> Result<Value, String> {
        let number = text.trim().parse();
        number.map(Value::Float).map_err(|_| format!("{text:?} is not a number"))
    }

    fn convert(given: &Given<'_>) -> Result<f64, String> {
        let number = match given.value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        };
        let valid = number.filter(|number| *number >= 0.0 && number.is_finite());
        valid.ok_or_else(|| "must be a number that is not negative".to_owned())
    }

    fn show(&self, _: &Value) -> String {
        Value::Float(*self).to_string()
    }
}

/// Folders, as absolute paths; `~` is the user's home folder. A variable separates them with
/// colons.
impl SettingValue for Vec<PathBuf> {
    fn parse(text: &str) -> Result<Value, String> {
        let folders = text.split(':').filter(|folder| !folder.is_empty());
        Ok(Value::Array(folders.map(|folder| Value::String(folder.to_owned())).collect()))
    }

    fn convert(given: &Given<'_>) -> Result<Vec<PathBuf>, String> {
        let folders = given.texts().ok_or("must be a list of paths")?;
        if !folders.iter().all(|folder| folder.starts_with(['/', '~'])) {
            return Err("must be a list of absolute paths".to_owned());
        }
        Ok(folders.iter().map(|folder| paths::expand(folder, given.environment)).collect())
    }
}

/// A folder, or an empty text for none.
impl SettingValue for Option<PathBuf> {
    fn convert(given: &Given<'_>) -> Result<Option<PathBuf>, String> {
        let folder = given.text()?;
        Ok((!folder.is_empty()).then(|| paths::expand(folder, given.environment)))
    }
}

/// A list of host names without ports. A variable separates them with commas.
#[derive(Debug, Clone)]
pub struct HostNames(pub Vec<String>);

impl SettingValue for HostNames {
    fn parse(text: &str) -> Result<Value, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Value::Array(names.map(|name| Value::String(name.to_owned())).collect()))
    }

    fn convert(given: &Given<'_>) -> Result<HostNames, String> {
        let names = given.texts().ok_or("must be a list of host names")?;
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !names.iter().all(|name| !name.is_empty() && name.chars().all(is_allowed)) {
            return Err("must be a list of host names without ports".to_owned());
        }
        Ok(HostNames(names.into_iter().map(str::to_owned).collect()))
    }
}

/// Records that the server imports by itself: those of clients, by their names, and those below folders. A variable
/// separates them with commas.
#[derive(Debug, Clone)]
pub struct FollowedRecords {
    pub clients: Vec<RecordedClient>,
    pub folders: Vec<PathBuf>,
}

impl SettingValue for FollowedRecords {
    fn parse(text: &str) -> Result<Value, String> {
        HostNames::parse(text)
    }

    fn convert(given: &Given<'_>) -> Result<FollowedRecords, String> {
        // `hob config set` writes a text.
        let listed = given.value.as_str().map(Self::parse).transpose()?;
        let value = listed.as_ref().unwrap_or(&given.value);
        let names = value.as_array().ok_or("must be a list of programs and folders")?;
        let mut followed = FollowedRecords { clients: Vec::new(), folders: Vec::new() };
        for name in names {
            let name = name.as_str().ok_or("must be a list of texts")?;
            let recorder =
                RECORDS.iter().find(|known| known.id == name && !known.places.is_empty());
            match recorder {
                Some(known) => followed.clients.push(known.client),
                None if name.starts_with(['/', '~']) => {
                    followed.folders.push(paths::expand(name, given.environment));
                }
                None => {
                    let known = RECORDS.iter().filter(|known| !known.places.is_empty());
                    let known: Vec<&str> = known.map(|known| known.id).collect();
                    return Err(format!(
                        "{name:?} is neither one of {} nor an absolute path of a folder",
                        known.join(", ")
                    ));
                }
            }
        }
        Ok(followed)
    }
}

/// The URL of a database, or an empty text for none. It may hold a password, so neither errors nor
/// rows repeat it.
impl SettingValue for Option<StoreUrl> {
    fn convert(given: &Given<'_>) -> Result<Option<StoreUrl>, String> {
        match given.text()? {
            "" => Ok(None),
            url => url.parse::<StoreUrl>().map(Some).map_err(|error| error.to_string()),
        }
    }

    fn show(&self, value: &Value) -> String {
        self.as_ref().map_or_else(|| value.to_string(), StoreUrl::to_string)
    }
}

impl SettingValue for HistoryMode {
    fn convert(given: &Given<'_>) -> Result<HistoryMode, String> {
        let mode = given.value.as_str().and_then(HistoryMode::parse);
        mode.ok_or_else(|| "must be one of native_jsonl, concat_message".to_owned())
    }
}

/// The name of an agent. Whether that agent exists is checked once all agents are known; the error
/// then needs the setting's key and source.
#[derive(Debug, Clone)]
pub struct AgentReference {
    pub name: String,
    pub key: &'static str,
    pub source: Source,
}

impl SettingValue for AgentReference {
    fn convert(given: &Given<'_>) -> Result<AgentReference, String> {
        let name = given.text()?.to_owned();
        Ok(AgentReference { name, key: given.setting.key, source: given.source.clone() })
    }
}
