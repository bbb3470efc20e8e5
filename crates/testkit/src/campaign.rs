//! Whether tests are part of a campaign.

/// Returns whether tests run with their full counts, as `scripts/campaign` does.
pub fn is_campaign() -> bool {
    std::env::var_os("HOB_CAMPAIGN").is_some()
}
