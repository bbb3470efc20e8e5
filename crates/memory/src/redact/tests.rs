//! The samples are assembled at run time, so that no scanner flags this file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;

use super::{Original, find, mask, unmask};

/// Checks what a text looks like once masked; `None` if it must not change.
fn check(input: &str, expect: Option<&str>) {
    let masked = mask(input);
    assert_eq!(masked.text, expect.unwrap_or(input), "from {input}");
    assert_eq!(unmask(&masked.text, &masked.originals).as_deref(), Some(input));
    assert_eq!(find(&masked.text), [], "again from {input}");
}

/// Returns a random-looking text of a length; the same on every run.
fn body(alphabet: &str, length: usize) -> String {
    let alphabet = alphabet.as_bytes();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ length as u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        alphabet[(state >> 33) as usize % alphabet.len()] as char
    };
    (0..length).map(|_| next()).collect()
}

const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";
const CAPITALS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const SMALL: &str = "abcdefghijklmnopqrstuvwxyz0123456789";

#[test]
fn known_shapes_are_masked_in_any_context() {
    // Prefix, alphabet, length, kind.
    let shapes = [
        ("AKIA", CAPITALS, 16, "aws-key"),
        ("ASIA", CAPITALS, 16, "aws-key"),
        ("ghp_", MIXED, 36, "github-token"),
        ("ghs_", MIXED, 36, "github-token"),
        ("github_pat_", MIXED, 82, "github-token"),
        ("glpat-", MIXED, 20, "gitlab-token"),
        ("glptt-", HEX, 40, "gitlab-token"),
        ("sk-", MIXED, 48, "openai-key"),
        ("sk-proj-", MIXED, 120, "openai-key"),
        ("sk-ant-api03-", MIXED, 95, "anthropic-key"),
        ("sk-or-v1-", HEX, 64, "openrouter-key"),
        ("AIza", MIXED, 35, "google-key"),
        ("ya29.", MIXED, 100, "google-token"),
        ("GOCSPX-", MIXED, 28, "google-secret"),
        ("1//0", MIXED, 50, "google-token"),
        ("xoxb-1234567890-", MIXED, 24, "slack-token"),
        ("xapp-1-", MIXED, 40, "slack-token"),
        ("sk_live_", MIXED, 24, "stripe-key"),
        ("rk_live_", MIXED, 24, "stripe-key"),
        ("whsec_", MIXED, 32, "webhook-secret"),
        ("AC", HEX, 32, "twilio-key"),
        ("key-", SMALL, 32, "mailgun-key"),
        ("npm_", MIXED, 36, "npm-token"),
        ("pypi-AgEI", MIXED, 120, "pypi-token"),
        ("rubygems_", HEX, 48, "rubygems-token"),
        ("cio", MIXED, 32, "crates-token"),
        ("dckr_pat_", MIXED, 27, "docker-token"),
        ("dop_v1_", HEX, 64, "digitalocean-token"),
        ("HRKU-", MIXED, 60, "heroku-key"),
        ("hf_", MIXED, 34, "huggingface-token"),
        ("r8_", MIXED, 37, "replicate-token"),
        ("gsk_", MIXED, 52, "groq-key"),
        ("pplx-", MIXED, 48, "perplexity-key"),
        ("xai-", MIXED, 80, "xai-key"),
        ("dapi", HEX, 32, "databricks-token"),
        ("hvs.", MIXED, 95, "vault-token"),
        ("s.", MIXED, 24, "vault-token"),
        ("shpat_", HEX, 32, "shopify-token"),
        ("sq0csp-", MIXED, 43, "square-token"),
        ("EAAC", MIXED, 150, "facebook-token"),
        ("NRAK-", CAPITALS, 27, "newrelic-key"),
        ("sntryu_", HEX, 64, "sentry-token"),
        ("glc_", MIXED, 80, "grafana-token"),
        ("ntn_", MIXED, 46, "notion-token"),
        ("secret_", MIXED, 43, "notion-token"),
        ("lin_api_", MIXED, 40, "linear-key"),
        ("figd_", MIXED, 40, "figma-token"),
        ("dp.pt.", MIXED, 43, "doppler-token"),
        ("pul-", HEX, 40, "pulumi-token"),
        ("fo1_", MIXED, 43, "fly-token"),
        ("sbp_", HEX, 40, "supabase-token"),
        ("pscale_tkn_", MIXED, 43, "planetscale-token"),
        ("nfp_", MIXED, 36, "netlify-token"),
        ("sl.", MIXED, 135, "dropbox-token"),
        ("ATATT3", MIXED, 180, "atlassian-token"),
        ("ATBB", MIXED, 32, "bitbucket-token"),
        ("LTAI", MIXED, 20, "alibaba-key"),
        ("AKID", MIXED, 32, "tencent-key"),
        ("AGE-SECRET-KEY-1", CAPITALS, 58, "age-key"),
        ("123456789:", MIXED, 35, "telegram-token"),
        ("SG.abcdefGHIJKL123456_-xy.", MIXED, 43, "sendgrid-key"),
        ("patAbCdEfGh123456.", HEX, 64, "airtable-token"),
        ("aB3dE5fG7hI9jK.atlasv1.", MIXED, 67, "terraform-token"),
        ("aB38Q~", MIXED, 34, "azure-secret"),
        ("1/1200000000000000:", HEX, 32, "asana-token"),
        ("A3T", CAPITALS, 17, "aws-key"),
        ("pypi-AgEN", MIXED, 120, "pypi-token"),
        ("cfut_", MIXED, 48, "cloudflare-token"),
        ("ddp_", MIXED, 36, "deno-token"),
        ("figp_", MIXED, 44, "figma-token"),
        ("ptr_", MIXED, 44, "portainer-token"),
        ("BBDC-", MIXED, 44, "bitbucket-token"),
        ("3MVG9", MIXED, 85, "salesforce-key"),
        ("sqco_", MIXED, 59, "sonarqube-token"),
        ("sgd_", HEX, 48, "sourcegraph-token"),
        ("ramp_sec_", MIXED, 48, "ramp-secret"),
        ("KEY0", MIXED, 54, "telnyx-key"),
        ("sdk-", HEX, 36, "launchdarkly-key"),
        ("ATTA", HEX, 72, "trello-token"),
        ("CCIPRJ_", MIXED, 62, "circleci-token"),
        ("snyk_uat.", MIXED, 60, "snyk-token"),
        ("oy2", SMALL, 43, "nuget-key"),
        ("KGAT_", HEX, 32, "kaggle-token"),
        ("rpa_", MIXED, 46, "runpod-key"),
        ("mdb_sa_sk_", MIXED, 40, "mongodb-secret"),
        ("os_v2_app_", SMALL, 103, "onesignal-key"),
        ("pdl_live_apikey_", MIXED, 50, "paddle-key"),
        ("phs_", MIXED, 43, "posthog-key"),
        ("nsec1", SMALL, 58, "wallet-key"),
    ];
    for (prefix, alphabet, length, kind) in shapes {
        let secret = format!("{prefix}{}", body(alphabet, length));
        for around in
            ["@", "use @ now", "see @.", "`@`", "{\"v\":\"@\"}", "X=@", "a\\n@\\nb", "(@),"]
        {
            let expect = around.replace('@', &format!("[secret:{kind}]"));
            check(&around.replace('@', &secret), Some(&expect));
        }
    }
}

#[test]
fn assigned_secrets_are_masked() {
    let token = body(MIXED, 24);
    let hex = body(HEX, 32);
    let web = format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", body(MIXED, 30), body(MIXED, 43));
    let discord = format!("M{}.{}.{}", body(MIXED, 25), body(MIXED, 6), body(MIXED, 38));
    let cases = [
        ("password = \"@\"", "hunter2!", "password"),
        ("PASSWORD=@", "hunter2", "password"),
        ("the password: @", "hunter2", "password"),
        ("\\\"password\\\": \\\"@\\\"", "Tr0ub4dor", "password"),
        ("let password: &str = \"@\";", "Tr0ub4dor", "password"),
        ("login --password @ now", "Tr0ub4dor", "password"),
        ("mysql -u root -p'@' db", "Tr0ub4dor", "password"),
        ("curl -u joe:@ https://example.com", "Tr0ub4dor", "password"),
        ("machine example.com login joe password @", "Tr0ub4dor", "password"),
        ("db.example.com:5432:*:joe:@", "Tr0ub4dor", "password"),
        ("postgres://joe:@@db:5432/app", "Tr0ub4dor", "url-password"),
        ("api_key: @", &hex, "assigned-secret"),
        ("client_secret = '@'", &token, "assigned-secret"),
        ("https://example.com/?a=b&token=@&c=d", &hex, "assigned-secret"),
        ("aws_secret_access_key = @", &body(MIXED, 40), "assigned-secret"),
        ("Authorization: Bearer @", &hex, "authorization"),
        ("-H 'Authorization: Basic @'", "am9lOmh1bnRlcjI=", "authorization"),
        ("AccountName=x;AccountKey=@;Suffix=y", &format!("{}==", body(MIXED, 86)), "azure-key"),
        ("https://hooks.slack.com/services/@", &format!("T0/B0/{token}"), "slack-webhook"),
        ("the cookie is @ here", &web, "jwt"),
        ("bot @ runs", &discord, "discord-token"),
        ("key @ works", &format!("{hex}-us12"), "mailchimp-key"),
        ("what is @ for?", &body(MIXED, 40), "high-entropy"),
        ("what is @ for?", &body(SMALL, 32), "high-entropy"),
    ];
    for (around, secret, kind) in cases {
        let (before, after) = around.split_once('@').expect("a place for the secret");
        let expect = format!("{before}[secret:{kind}]{after}");
        check(&format!("{before}{secret}{after}"), Some(&expect));
    }
}

#[test]
fn private_key_blocks_are_masked_and_public_ones_are_not() {
    let lines = [body(MIXED, 64), body(MIXED, 63), body(MIXED, 30)];
    for label in ["RSA PRIVATE", "EC PRIVATE", "OPENSSH PRIVATE", "PRIVATE", "ENCRYPTED PRIVATE"] {
        for end in ["\n", "\\n"] {
            let text = lines.join(end);
            let dashes = "-----";
            let block = format!(
                "{dashes}BEGIN {label} KEY{dashes}{end}{text}{end}{dashes}END {label} KEY{dashes}"
            );
            check(&format!("K=\"{block}\" x"), Some("K=\"[secret:private-key]\" x"));
            let public = block.replace(label, "PUBLIC");
            check(&public, None);
            check(&public.replace("PUBLIC KEY", "CERTIFICATE"), None);
        }
    }
    check(&format!("if line == \"{} RSA PRIVATE KEY-----\" {{", "-----BEGIN"), None);
}

#[test]
fn public_text_is_not_masked() {
    let hex = |length| body(HEX, length);
    let encoded = format!("{}==", body(MIXED, 86));
    let made = [
        format!("commit {} fixes it", hex(40)),
        format!("checksum = \"{}\"", hex(64)),
        format!("image@sha256:{}", hex(64)),
        format!("sha512 {}", hex(128)),
        format!("\"integrity\": \"sha512-{encoded}\""),
        format!("golang.org/x/net v0.1.0 h1:{}=", body(MIXED, 43)),
        format!("data:image/png;base64,{encoded}"),
        format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} joe@host", body(MIXED, 43)),
        format!("https://docs.example.com/d/{}/edit", body(MIXED, 44)),
        format!("\"id\": \"toolu_01{}\"", body(MIXED, 22)),
        format!("dist/assets/{}.js", body(MIXED, 24)),
        format!("ghp_{}", "x".repeat(36)),
        format!("postgres://user:{}@localhost/db", "password"),
        "export function derive(password: Uint8Array, salt: Uint8Array)".to_owned(),
    ];
    let plain = [
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "password = \"...\"",
        "api_key = \"<your-api-key>\"",
        "token: ${TOKEN}",
        "PASSWORD=$PASSWORD",
        "apiKey: process.env.OPENAI_API_KEY2,",
        "password = \"changeme\"",
        "secret: xxxxxxxx",
        "password: String,",
        "token = next_token()",
        "secret: &str",
        "let password = get_password(user)",
        "let token = parser.next2();",
        "token: Vec<u8>, secret: [u8; 32]",
        "\"password\": \"Enter your password2\"",
        "https://example.com:8080/path?query=1#fragment",
        "AbstractSingletonProxyFactoryBean2Utf8ToUtf16Converter",
        "a_very_long_snake_case_identifier_with_2_numbers_and_more",
        "some-kebab-case-class-name-md-2xl-hover-focus-ring-offset-4",
        "should_return_404_when_user_is_not_found_in_v2_api",
        "x86_64-unknown-linux-gnu-1.90.0-2025-09-14T00:00:00.000Z",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "1234567890123456789012345678901234567890",
        "max_tokens: 4096, token_type: \"bearer\"",
        "VGhpcyBpcyBwbGFpbiBFbmdsaXNoIHRleHQu",
        "[secret:x] and [secret:github-token]",
        "Authorization: Bearer <token>",
        "Authorization: Bearer YOUR_API_KEY_1",
        "vec![0x0123456789abcdef0123456789abcdefu128]",
        "--token-file /run/secrets/token1",
    ];
    for text in made.iter().map(String::as_str).chain(plain) {
        check(text, None);
    }
}

#[test]
fn unmask_refuses_originals_that_do_not_fit() {
    let original = |at, mask| Original { at, mask, secret: "s".into() };
    assert_eq!(unmask("a [secret:x] b", &[original(2, 10)]).as_deref(), Some("a s b"));
    for wrong in [original(3, 10), original(2, 9), original(0, 1), original(2, usize::MAX)] {
        assert_eq!(unmask("a [secret:x] b", &[wrong]), None);
    }
    assert_eq!(unmask("[secret:x]", &[original(0, 10), original(0, 10)]), None);
}

/// Generates text that is full of what the scanners search for.
fn tricky() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "\\PC{0,12}",
        "[A-Za-z0-9_+/=.:~-]{0,60}",
        prop::sample::select(vec![
            "password",
            "token",
            "secret",
            "api_key",
            "=",
            ":",
            " = ",
            ": ",
            "\"",
            "'",
            "\\\"",
            "\\n",
            "\n",
            "\0",
            "[secret:",
            "[secret:x]",
            "]",
            "://",
            "user:",
            "@host",
            "ghp_",
            "sk-",
            "eyJ",
            " PRIVATE KEY-----",
            "-----END ",
            "-----BEGIN ",
            "Bearer ",
            "Authorization: ",
            "--password ",
            "mysql -p",
            "curl -u a:",
            ":5432:*:",
            "🦀",
            "é",
            "%3D",
            "PuTTY-User-Key-File-2: ",
            "Private-MAC: ",
            "machine a login b password ",
            "8Q~",
            "Basic ",
            "aB38Q~",
            "1/12345678:",
            "SG.",
            "AccountKey=",
            "\u{200b}",
            "%5F",
            "\\u005f",
            "the password is ",
            "密码是",
            "api key ",
            "backup codes: ",
            " with ",
            "4539 1488 0343 6467",
            "abcd efgh ",
            "able ",
            "<password>",
            "</password>",
            "value=",
            "$6$salt$",
            "{SSHA}",
            "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19",
            "account number ",
            "secret key 01:02:03:04:",
            "secret_key = [1, 2, 3, ",
            " │\n│ ",
            "=\n",
            "\"d\":\"",
            "\"kty\"",
            "define('password', '",
            ";P:",
            "WIFI:",
            "a:b1@host.example",
            "-auth a:",
        ])
        .prop_map(str::to_owned),
        (20usize..120).prop_map(|length| body(MIXED, length)),
        (20usize..120).prop_map(|length| body(HEX, length)),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn masking_is_reversible_and_idempotent(text in tricky()) {
        let findings = find(&text);
        let mut end = 0;
        for finding in &findings {
            prop_assert!(finding.range.start >= end && finding.range.start < finding.range.end);
            prop_assert!(text.get(finding.range.clone()).is_some());
            end = finding.range.end;
        }
        let masked = mask(&text);
        prop_assert_eq!(unmask(&masked.text, &masked.originals), Some(text));
        prop_assert_eq!(find(&masked.text), vec![]);
    }

    #[test]
    fn any_text_unmasks_to_itself(text in any::<String>()) {
        let masked = mask(&text);
        prop_assert_eq!(unmask(&masked.text, &masked.originals), Some(text));
    }
}

#[test]
fn numbers_need_their_check_digits() {
    for (number, kind) in [
        ("4539 1488 0343 6467", "card-number"),
        ("4539148803436467", "card-number"),
        ("3782-822463-10005", "card-number"),
        ("DE89 3704 0044 0532 0130 00", "bank-account"),
        ("NL91ABNA0417164300", "bank-account"),
    ] {
        check(&format!("pay {number}, please"), Some(&format!("pay [secret:{kind}], please")));
        // Another last digit but one, which the check digit does not fit.
        let at = number.rfind(|c: char| c.is_ascii_digit()).expect("a digit") - 1;
        let other = if number.as_bytes()[at] == b'7' { "1" } else { "7" };
        let wrong = format!("{}{other}{}", &number[..at], &number[at + 1..]);
        check(&format!("pay {wrong}, please"), None);
    }
}

#[test]
fn recovery_phrases_are_masked_and_word_lists_are_not() {
    let phrase = "legal winner thank year wave sausage worth useful legal winner thank yellow";
    check(&format!("it is {phrase}."), Some("it is [secret:recovery-phrase]."));
    check(&phrase.replace(' ', "\n"), Some("[secret:recovery-phrase]"));
    check(&phrase.replace("wave", "of"), None);
    // The checksum of these is right, although their words recur.
    let words = |word: &str, last: &str| format!("{}{last}", format!("{word} ").repeat(11));
    for phrase in [words("abandon", "about"), words("zoo", "wrong")] {
        check(&phrase, Some("[secret:recovery-phrase]"));
    }
    check(&words("abandon", "zoo"), None);
    let mut sorted: Vec<&str> = phrase.split(' ').collect();
    sorted.sort_unstable();
    check(&sorted.join(" "), None);
}

#[test]
fn broken_and_encoded_tokens_are_masked() {
    let token = format!("ghp_{}", body(MIXED, 36));
    let (start, end) = token.split_at(17);
    for gap in ["\n", "\r\n    ", "\\\n", "\n> ", "\u{200b}", "\u{ad}", "\u{feff}"] {
        check(&format!("a {start}{gap}{end} b"), Some("a [secret:github-token] b"));
    }
    for underscore in ["%5F", "%255f", "\\u005f", "\\x5f", "&#95;", "&#x5f;"] {
        let encoded = token.replace('_', underscore);
        check(&format!("a {encoded} b"), Some("a [secret:github-token] b"));
    }
    let once = BASE64.encode(&token);
    let twice = BASE64.encode(&once);
    for encoded in [once, twice] {
        check(&format!("a {encoded} b"), Some("a [secret:github-token] b"));
    }
}

#[test]
fn huge_lines_unmask_to_themselves() {
    for text in ["a".repeat(1 << 20), "password=".repeat(1 << 14), "-----BEGIN ".repeat(1 << 14)] {
        check(&text, None);
    }
    // Text that begins something secret at every position must not be read to its end from each.
    for piece in [
        "密码",
        "密码 ",
        "password ",
        "api key ",
        "backup codes: ",
        "otp: ",
        "with ",
        "M=",
        "MII",
        "%2",
        "%25",
        "\\u",
        "&#9",
        "ghp_a\n",
        "sk-a1b2c3d4e5\n",
        "able ",
        "abcd ",
        "4539 ",
        "DE89 ",
        "login ",
        "password:\n",
        "<password>",
        "key=\"password\" value=",
        "Cookie: sid=",
        "echo a | sudo -S ",
        "YWFh",
        "$6$",
        "a$",
        "{SHA}a",
        "secret_key=[1,",
        "secret key 1:",
        "\"d\":\"kty",
        "a:b@",
        "account number 1",
        "set(\"password\",",
        "│\n",
        "ghp_a =\n",
    ] {
        let text = piece.repeat((1 << 18) / piece.len());
        let masked = mask(&text);
        assert_eq!(unmask(&masked.text, &masked.originals), Some(text));
    }
    let many = format!("x={} ", format_args!("ghp_{}", body(MIXED, 36))).repeat(1000);
    assert_eq!(mask(&many).originals.len(), 1000);
}
