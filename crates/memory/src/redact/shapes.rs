//! Known shapes of tokens: a prefix that the issuer chose, and the alphabet and length of the rest.

use super::bytes::{
    ALNUM, AT, BASE64, COLON, COMMA, DASH, DOT, EQUALS, HEX, SLASH, TILDE, UNDERSCORE, UPPER_ALNUM,
    WORD, class_at, run_end_within,
};
use super::entropy::{distinct, look, random};
use super::finding::Finding;
use super::values::placeholder;

/// How much the text after a prefix must look like a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The prefix and the length are proof enough.
    Form,
    /// Not a word and not a placeholder.
    Mixed,
    /// The prefix is weak, so the rest must look random on its own.
    Random,
}

struct Shape {
    prefix: &'static str,
    set: u16,
    least: usize,
    most: usize,
    proof: Proof,
    kind: &'static str,
    /// Whether the prefix stays visible, as with the URL of a webhook.
    keep: bool,
}

const fn shape(
    prefix: &'static str,
    set: u16,
    lengths: (usize, usize),
    proof: Proof,
    kind: &'static str,
) -> Shape {
    Shape { prefix, set, least: lengths.0, most: lengths.1, proof, kind, keep: false }
}

const fn after(
    prefix: &'static str,
    set: u16,
    lengths: (usize, usize),
    kind: &'static str,
) -> Shape {
    let proof = Proof::Mixed;
    Shape { prefix, set, least: lengths.0, most: lengths.1, proof, kind, keep: true }
}

use Proof::{Form, Mixed, Random};

const MAX_TOKEN_BYTES: usize = 1024;

/// The known shapes. A longer prefix precedes a shorter one that it begins with.
const SHAPES: &[Shape] = &[
    shape("AKIA", UPPER_ALNUM, (16, 16), Form, "aws-key"),
    shape("ASIA", UPPER_ALNUM, (16, 16), Form, "aws-key"),
    shape("ABIA", UPPER_ALNUM, (16, 16), Form, "aws-key"),
    shape("ACCA", UPPER_ALNUM, (16, 16), Form, "aws-key"),
    shape("ABSK", BASE64 | EQUALS, (90, 270), Random, "aws-bedrock-key"),
    shape("ghp_", ALNUM, (30, 255), Mixed, "github-token"),
    shape("gho_", ALNUM, (30, 255), Mixed, "github-token"),
    shape("ghu_", ALNUM, (30, 255), Mixed, "github-token"),
    shape("ghs_", WORD | DOT, (30, MAX_TOKEN_BYTES), Mixed, "github-token"),
    shape("ghr_", ALNUM, (30, 255), Mixed, "github-token"),
    shape("github_pat_", ALNUM | UNDERSCORE, (22, 255), Mixed, "github-token"),
    shape("glpat-", WORD | DOT, (20, 300), Mixed, "gitlab-token"),
    shape("gldt-", WORD | DOT, (20, 300), Mixed, "gitlab-token"),
    shape("glrt-", WORD | DOT, (20, 300), Mixed, "gitlab-token"),
    shape("glrtr-", WORD | DOT, (20, 300), Mixed, "gitlab-token"),
    shape("glptt-", WORD, (20, 300), Mixed, "gitlab-token"),
    shape("glcbt-", WORD, (20, 300), Mixed, "gitlab-token"),
    shape("glft-", WORD, (20, 300), Mixed, "gitlab-token"),
    shape("glsoat-", WORD, (20, 300), Mixed, "gitlab-token"),
    shape("glimt-", WORD, (20, 300), Mixed, "gitlab-token"),
    shape("glagent-", WORD, (20, 300), Mixed, "gitlab-token"),
    shape("gloas-", WORD, (20, 300), Mixed, "gitlab-token"),
    shape("GR1348941", WORD, (20, 22), Mixed, "gitlab-token"),
    shape("sk-ant-", WORD, (20, 300), Mixed, "anthropic-key"),
    shape("sk-or-", WORD, (32, 100), Mixed, "openrouter-key"),
    shape("sk-proj-", WORD, (20, 300), Mixed, "openai-key"),
    shape("sk-svcacct-", WORD, (20, 300), Mixed, "openai-key"),
    shape("sk-admin-", WORD, (20, 300), Mixed, "openai-key"),
    shape("sk-None-", WORD, (20, 300), Mixed, "openai-key"),
    shape("sk-lf-", WORD, (36, 36), Mixed, "langfuse-key"),
    shape("sk-", ALNUM, (20, 200), Mixed, "openai-key"),
    shape("sess-", ALNUM, (40, 40), Random, "openai-key"),
    shape("AIza", WORD, (35, 40), Mixed, "google-key"),
    shape("AQ.", WORD, (40, 120), Random, "google-key"),
    shape("ya29.", WORD | DOT, (20, MAX_TOKEN_BYTES), Mixed, "google-token"),
    shape("GOCSPX-", WORD, (20, 40), Mixed, "google-secret"),
    shape("1//0", WORD, (20, 300), Mixed, "google-token"),
    shape("xoxb-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxp-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxa-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxr-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxs-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxc-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxd-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxe-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xoxe.xox", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    shape("xapp-", ALNUM | DASH, (10, 300), Mixed, "slack-token"),
    after("hooks.slack.com/services/", ALNUM | SLASH, (20, 120), "slack-webhook"),
    after("hooks.slack.com/workflows/", ALNUM | SLASH, (20, 120), "slack-webhook"),
    after("hooks.slack.com/triggers/", ALNUM | SLASH, (20, 120), "slack-webhook"),
    after("discord.com/api/webhooks/", WORD | SLASH, (40, 130), "discord-webhook"),
    after("discordapp.com/api/webhooks/", WORD | SLASH, (40, 130), "discord-webhook"),
    shape("sk_live_", ALNUM, (16, 255), Mixed, "stripe-key"),
    shape("sk_test_", ALNUM, (16, 255), Mixed, "stripe-key"),
    shape("rk_live_", ALNUM, (16, 255), Mixed, "stripe-key"),
    shape("rk_test_", ALNUM, (16, 255), Mixed, "stripe-key"),
    shape("sk_", HEX, (48, 48), Mixed, "elevenlabs-key"),
    shape("whsec_", BASE64 | EQUALS, (24, 100), Mixed, "webhook-secret"),
    shape("AC", HEX, (32, 32), Mixed, "twilio-key"),
    shape("SK", HEX, (32, 32), Mixed, "twilio-key"),
    shape("key-", ALNUM, (32, 32), Mixed, "mailgun-key"),
    shape("npm_", ALNUM, (36, 40), Mixed, "npm-token"),
    shape("pypi-AgEI", WORD, (50, MAX_TOKEN_BYTES), Mixed, "pypi-token"),
    shape("rubygems_", HEX, (48, 48), Mixed, "rubygems-token"),
    shape("cio", ALNUM, (32, 32), Random, "crates-token"),
    shape("dckr_pat_", WORD, (20, 60), Mixed, "docker-token"),
    shape("dckr_oat_", WORD, (20, 60), Mixed, "docker-token"),
    shape("dop_v1_", HEX, (64, 64), Mixed, "digitalocean-token"),
    shape("doo_v1_", HEX, (64, 64), Mixed, "digitalocean-token"),
    shape("dor_v1_", HEX, (64, 64), Mixed, "digitalocean-token"),
    shape("HRKU-", WORD, (36, 80), Mixed, "heroku-key"),
    shape("hf_", ALNUM, (30, 40), Mixed, "huggingface-token"),
    shape("api_org_", ALNUM, (30, 40), Mixed, "huggingface-token"),
    shape("r8_", ALNUM, (36, 40), Mixed, "replicate-token"),
    shape("gsk_", ALNUM, (40, 64), Mixed, "groq-key"),
    shape("pplx-", ALNUM, (40, 64), Mixed, "perplexity-key"),
    shape("xai-", ALNUM, (60, 100), Mixed, "xai-key"),
    shape("nvapi-", WORD, (50, 100), Mixed, "nvidia-key"),
    shape("csk-", ALNUM, (40, 64), Mixed, "cerebras-key"),
    shape("tgp_v1_", WORD, (32, 64), Mixed, "together-key"),
    shape("lsv2_pt_", HEX | UNDERSCORE, (40, 60), Mixed, "langsmith-key"),
    shape("lsv2_sk_", HEX | UNDERSCORE, (40, 60), Mixed, "langsmith-key"),
    shape("tvly-", WORD, (28, 60), Mixed, "tavily-key"),
    shape("e2b_", HEX, (40, 40), Mixed, "e2b-key"),
    shape("dapi", HEX | DASH, (32, 34), Mixed, "databricks-token"),
    shape("hvs.", WORD, (24, 300), Mixed, "vault-token"),
    shape("hvb.", WORD, (24, 300), Mixed, "vault-token"),
    shape("hvr.", WORD, (24, 300), Mixed, "vault-token"),
    shape("s.", ALNUM, (24, 24), Random, "vault-token"),
    shape("shpat_", HEX, (32, 32), Mixed, "shopify-token"),
    shape("shpss_", HEX, (32, 32), Mixed, "shopify-token"),
    shape("shppa_", HEX, (32, 32), Mixed, "shopify-token"),
    shape("shpca_", HEX, (32, 32), Mixed, "shopify-token"),
    shape("sq0csp-", WORD, (22, 60), Mixed, "square-token"),
    shape("sq0atp-", WORD, (22, 60), Mixed, "square-token"),
    shape("sq0idp-", WORD, (22, 60), Mixed, "square-token"),
    shape("EAAA", WORD, (56, 70), Random, "square-token"),
    shape("EAA", ALNUM, (57, 400), Random, "facebook-token"),
    shape("NRAK-", UPPER_ALNUM, (27, 27), Mixed, "newrelic-key"),
    shape("NRII-", WORD, (32, 32), Mixed, "newrelic-key"),
    shape("sntrys_", BASE64 | UNDERSCORE | EQUALS, (40, 600), Mixed, "sentry-token"),
    shape("sntryu_", HEX, (64, 64), Mixed, "sentry-token"),
    shape("glc_", BASE64 | EQUALS, (32, 400), Mixed, "grafana-token"),
    shape("glsa_", ALNUM | UNDERSCORE, (41, 41), Mixed, "grafana-token"),
    shape("eyJrIjoi", BASE64 | EQUALS, (50, 400), Mixed, "grafana-key"),
    shape("PMAK-", HEX | DASH, (59, 59), Mixed, "postman-key"),
    shape("secret_", ALNUM, (43, 43), Random, "notion-token"),
    shape("ntn_", ALNUM, (40, 52), Mixed, "notion-token"),
    shape("lin_api_", ALNUM, (32, 64), Mixed, "linear-key"),
    shape("lin_oauth_", ALNUM, (32, 64), Mixed, "linear-key"),
    shape("figd_", WORD, (36, 64), Mixed, "figma-token"),
    shape("dp.pt.", ALNUM, (40, 44), Mixed, "doppler-token"),
    shape("dp.ct.", ALNUM, (40, 44), Mixed, "doppler-token"),
    shape("dp.sa.", ALNUM, (40, 44), Mixed, "doppler-token"),
    shape("dp.scim.", ALNUM, (40, 44), Mixed, "doppler-token"),
    shape("dp.audit.", ALNUM, (40, 44), Mixed, "doppler-token"),
    shape("dp.st.", WORD | DOT, (40, 80), Mixed, "doppler-token"),
    shape("pul-", HEX, (40, 40), Mixed, "pulumi-token"),
    shape("fo1_", WORD, (43, 43), Mixed, "fly-token"),
    shape("fm1r_", BASE64 | EQUALS | COMMA | UNDERSCORE, (50, 4096), Mixed, "fly-token"),
    shape("fm1a_", BASE64 | EQUALS | COMMA | UNDERSCORE, (50, 4096), Mixed, "fly-token"),
    shape("fm2_", BASE64 | EQUALS | COMMA | UNDERSCORE, (50, 4096), Mixed, "fly-token"),
    shape("sbp_", ALNUM | UNDERSCORE, (40, 48), Mixed, "supabase-token"),
    shape("sb_secret_", WORD, (20, 64), Mixed, "supabase-key"),
    shape("pscale_tkn_", WORD | DOT | EQUALS, (32, 64), Mixed, "planetscale-token"),
    shape("pscale_pw_", WORD | DOT | EQUALS, (32, 64), Mixed, "planetscale-token"),
    shape("pscale_oauth_", WORD | DOT | EQUALS, (32, 64), Mixed, "planetscale-token"),
    shape("nfp_", ALNUM, (36, 60), Mixed, "netlify-token"),
    shape("vcp_", ALNUM, (24, 64), Mixed, "vercel-token"),
    shape("vck_", ALNUM, (24, 64), Mixed, "vercel-token"),
    shape("vca_", ALNUM, (24, 64), Mixed, "vercel-token"),
    shape("vci_", ALNUM, (24, 64), Mixed, "vercel-token"),
    shape("vcr_", ALNUM, (24, 64), Mixed, "vercel-token"),
    shape("sl.", WORD | DOT | EQUALS, (60, MAX_TOKEN_BYTES), Random, "dropbox-token"),
    shape("ATATT3", WORD | EQUALS, (50, 300), Mixed, "atlassian-token"),
    shape("ATCTT3", WORD | EQUALS, (50, 300), Mixed, "atlassian-token"),
    shape("ATBB", ALNUM, (28, 40), Mixed, "bitbucket-token"),
    shape("00", WORD, (40, 40), Random, "okta-token"),
    shape("LTAI", ALNUM, (12, 24), Mixed, "alibaba-key"),
    shape("AKID", ALNUM, (13, 40), Mixed, "tencent-key"),
    shape("AGE-SECRET-KEY-1", UPPER_ALNUM, (50, 64), Mixed, "age-key"),
    shape("AGE-SECRET-KEY-PQ-1", UPPER_ALNUM, (50, 90), Mixed, "age-key"),
    shape("tskey-", WORD, (20, 80), Mixed, "tailscale-key"),
    shape("ops_eyJ", WORD, (80, 4096), Mixed, "onepassword-token"),
    shape("v1.0-", HEX | DASH, (150, 200), Mixed, "cloudflare-key"),
    shape("phx_", ALNUM, (40, 50), Mixed, "posthog-key"),
    shape("sgp_", ALNUM | UNDERSCORE, (40, 70), Mixed, "sourcegraph-token"),
    shape("CCIPAT_", ALNUM | UNDERSCORE, (40, 80), Mixed, "circleci-token"),
    shape("bkua_", HEX, (40, 40), Mixed, "buildkite-token"),
    shape("syt_", ALNUM | UNDERSCORE, (30, 120), Random, "matrix-token"),
    shape("xkeysib-", HEX | DASH, (64, 90), Mixed, "brevo-key"),
    shape("rnd_", ALNUM, (28, 36), Mixed, "render-key"),
    shape("CLOJARS_", HEX, (60, 60), Mixed, "clojars-token"),
    shape("EZAK", ALNUM, (54, 54), Mixed, "easypost-key"),
    shape("FLWSECK", WORD, (20, 60), Mixed, "flutterwave-key"),
    shape("shippo_live_", HEX, (40, 40), Mixed, "shippo-key"),
    shape("AstraCS:", ALNUM | SLASH | EQUALS, (40, 120), Mixed, "astra-token"),
    shape("sha256~", WORD | TILDE, (43, 43), Mixed, "openshift-token"),
    shape("pat-na1-", HEX | DASH, (36, 36), Mixed, "hubspot-token"),
    shape("pat-eu1-", HEX | DASH, (36, 36), Mixed, "hubspot-token"),
    shape("sk-live-", WORD, (20, 100), Mixed, "api-key"),
    after("api.telegram.org/bot", ALNUM | COLON | DASH | UNDERSCORE, (40, 50), "telegram-token"),
    after("webhook.office.com/webhookb2/", WORD | SLASH | AT, (80, 220), "teams-webhook"),
    after("outlook.office.com/webhook/", WORD | SLASH | AT, (80, 220), "teams-webhook"),
    after("hooks.zapier.com/hooks/catch/", ALNUM | SLASH, (8, 60), "zapier-webhook"),
    after("maker.ifttt.com/trigger/", WORD | SLASH, (30, 120), "ifttt-key"),
    shape("dt0c01.", UPPER_ALNUM | DOT, (80, 100), Mixed, "dynatrace-token"),
    shape("dt0s01.", UPPER_ALNUM | DOT, (80, 100), Mixed, "dynatrace-token"),
    shape("dt0s16.", UPPER_ALNUM | DOT, (80, 100), Mixed, "dynatrace-token"),
    shape("squ_", ALNUM, (40, 40), Mixed, "sonarqube-token"),
    shape("sqp_", ALNUM, (40, 40), Mixed, "sonarqube-token"),
    shape("sqa_", ALNUM, (40, 40), Mixed, "sonarqube-token"),
    shape("CFPAT-", WORD, (40, 50), Mixed, "contentful-token"),
    shape("AKCp", ALNUM, (60, 75), Mixed, "artifactory-key"),
    shape("cmVmdGtu", ALNUM, (40, 60), Mixed, "artifactory-token"),
    shape("re_", ALNUM | UNDERSCORE, (30, 40), Random, "resend-key"),
    shape("pcsk_", ALNUM | UNDERSCORE, (60, 80), Mixed, "pinecone-key"),
    shape("aio_", ALNUM, (28, 28), Mixed, "adafruit-key"),
    shape("pnu_", ALNUM, (36, 36), Mixed, "prefect-key"),
    shape("pnb_", ALNUM, (36, 36), Mixed, "prefect-key"),
    shape("p8e-", ALNUM, (32, 32), Mixed, "adobe-secret"),
    shape("p8-", ALNUM, (32, 32), Mixed, "adobe-secret"),
    shape("dnkey-", WORD, (60, 100), Mixed, "defined-networking-key"),
    shape("duffel_live_", WORD | EQUALS, (40, 50), Mixed, "duffel-token"),
    shape("duffel_test_", WORD | EQUALS, (40, 50), Mixed, "duffel-token"),
    shape("EZTK", ALNUM, (54, 54), Mixed, "easypost-key"),
    shape("fio-u-", WORD | EQUALS, (60, 70), Mixed, "frameio-token"),
    shape("ico-", ALNUM, (32, 32), Mixed, "infracost-key"),
    shape("s-s4t2ud-", HEX, (64, 64), Mixed, "intra-secret"),
    shape("s-s4t2af-", HEX, (64, 64), Mixed, "intra-secret"),
    shape("sk.eyJ", WORD | DOT, (60, 200), Mixed, "mapbox-token"),
    shape("live_", ALNUM, (30, 48), Mixed, "live-key"),
    shape("API-", UPPER_ALNUM, (26, 32), Mixed, "octopus-key"),
    shape("A3-", UPPER_ALNUM | DASH, (30, 40), Mixed, "onepassword-key"),
    shape("access-sandbox-", HEX | DASH, (36, 36), Mixed, "plaid-token"),
    shape("access-development-", HEX | DASH, (36, 36), Mixed, "plaid-token"),
    shape("access-production-", HEX | DASH, (36, 36), Mixed, "plaid-token"),
    shape("rdme_", ALNUM, (60, 80), Mixed, "readme-key"),
    shape("tk-us-", WORD, (40, 60), Mixed, "scalingo-token"),
    shape("sm_pat_", ALNUM, (16, 20), Mixed, "settlemint-token"),
    shape("sm_aat_", ALNUM, (16, 20), Mixed, "settlemint-token"),
    shape("tfp_", WORD | DOT | EQUALS, (40, 70), Mixed, "typeform-token"),
    shape("t1.", WORD | DOT | EQUALS, (80, 300), Random, "yandex-token"),
    shape("y0_", WORD, (50, 80), Mixed, "yandex-token"),
    shape("AQVN", WORD, (35, 40), Mixed, "yandex-key"),
    shape("YCAJE", WORD, (20, 30), Mixed, "yandex-key"),
    shape("YCM", WORD, (35, 42), Mixed, "yandex-key"),
    shape("CCDB1_", ALNUM | UNDERSCORE, (30, 90), Mixed, "cockroach-key"),
    shape("dvc_server_", WORD, (20, 90), Mixed, "devcycle-key"),
    shape("api_live.", WORD | DOT, (20, 80), Mixed, "onfido-key"),
    shape("api_sandbox.", WORD | DOT, (20, 80), Mixed, "onfido-key"),
    shape("xsmtpsib-", HEX | DASH, (64, 90), Mixed, "brevo-key"),
    shape("tss_", ALNUM, (40, 50), Mixed, "thunderstore-token"),
    shape("AKLT", BASE64 | EQUALS, (30, 60), Mixed, "volcengine-key"),
    shape("zpka_", ALNUM | UNDERSCORE, (30, 60), Mixed, "zuplo-key"),
    shape("persona_production_", WORD, (20, 80), Mixed, "persona-key"),
    shape("persona_sandbox_", WORD, (20, 80), Mixed, "persona-key"),
    shape("polar_", ALNUM | UNDERSCORE, (30, 60), Random, "polar-token"),
    shape("rootly_", HEX, (64, 64), Mixed, "rootly-token"),
    shape("secret-live-", WORD | EQUALS, (36, 50), Mixed, "stytch-secret"),
    shape("secret-test-", WORD | EQUALS, (36, 50), Mixed, "stytch-secret"),
    shape("secret-", ALNUM, (40, 50), Random, "statsig-key"),
    shape("rca_", HEX, (40, 64), Mixed, "raycast-token"),
    shape("vtwn_", ALNUM, (24, 40), Mixed, "valtown-token"),
    shape("fc-", HEX, (32, 32), Mixed, "firecrawl-key"),
    shape("jina_", WORD, (50, 70), Mixed, "jina-key"),
    shape("pa-", WORD, (40, 50), Random, "voyage-key"),
    shape("fw_", ALNUM, (20, 40), Mixed, "fireworks-key"),
    shape("esecret_", ALNUM, (20, 60), Mixed, "anyscale-key"),
    shape("bb_live_", WORD, (24, 50), Mixed, "browserbase-key"),
    shape("tr_dev_", ALNUM, (18, 40), Mixed, "trigger-key"),
    shape("tr_prod_", ALNUM, (18, 40), Mixed, "trigger-key"),
    shape("signkey-prod-", HEX, (32, 80), Mixed, "inngest-key"),
    shape("signkey-test-", HEX, (32, 80), Mixed, "inngest-key"),
    shape("sk_prod_", WORD, (20, 80), Mixed, "api-key"),
    shape("sk_dev_", WORD, (20, 80), Mixed, "api-key"),
    shape("napi_", ALNUM, (40, 80), Mixed, "neon-key"),
    shape("xaat-", HEX | DASH, (36, 36), Mixed, "axiom-token"),
    shape("xapt-", HEX | DASH, (36, 36), Mixed, "axiom-token"),
    shape("hcaik_", ALNUM, (50, 70), Mixed, "honeycomb-key"),
    shape("hcxik_", ALNUM, (50, 70), Mixed, "honeycomb-key"),
    shape("hcbik_", ALNUM, (50, 70), Mixed, "honeycomb-key"),
    shape("GOOG1E", UPPER_ALNUM, (50, 60), Mixed, "google-key"),
    shape("GOOG", UPPER_ALNUM, (16, 24), Mixed, "google-key"),
    shape("amzn.mws.", HEX | DASH, (36, 36), Mixed, "aws-key"),
    shape("amzn1.oa2-cs.v1.", HEX, (64, 64), Mixed, "aws-key"),
    shape("bedrock-api-key-", BASE64 | EQUALS, (40, 600), Mixed, "aws-bedrock-key"),
    shape("rzp_live_", ALNUM, (14, 20), Mixed, "razorpay-key"),
    shape("rzp_test_", ALNUM, (14, 20), Mixed, "razorpay-key"),
    shape("FLWPUBK_TEST-", WORD, (20, 60), Mixed, "flutterwave-key"),
    shape("xprv", ALNUM, (100, 112), Mixed, "wallet-key"),
    shape("yprv", ALNUM, (100, 112), Mixed, "wallet-key"),
    shape("zprv", ALNUM, (100, 112), Mixed, "wallet-key"),
    shape("glffct-", WORD, (20, 60), Mixed, "gitlab-token"),
    shape("ion_", ALNUM, (40, 50), Mixed, "ionic-token"),
    shape("PMAT-", UPPER_ALNUM, (26, 26), Mixed, "postman-key"),
    shape("apify_api_", ALNUM, (36, 40), Mixed, "apify-token"),
    shape("scw-", HEX | DASH, (36, 36), Mixed, "scaleway-key"),
    shape("SCW", UPPER_ALNUM, (17, 17), Mixed, "scaleway-key"),
    shape("BBFF-", ALNUM, (30, 40), Mixed, "ubidots-key"),
    shape("ory_at_", WORD | DOT, (40, 120), Mixed, "ory-token"),
    shape("ory_rt_", WORD | DOT, (40, 120), Mixed, "ory-token"),
    shape("ory_pat_", WORD | DOT, (20, 120), Mixed, "ory-token"),
    shape("mlsn.", HEX, (64, 64), Mixed, "mailersend-token"),
    shape("cal_live_", HEX, (32, 32), Mixed, "cal-key"),
    shape("dG9rO", BASE64 | EQUALS, (20, 80), Mixed, "intercom-token"),
    shape("lip_", ALNUM, (16, 40), Mixed, "lichess-token"),
    shape("wandb_v1_", WORD, (30, 120), Mixed, "wandb-key"),
    after("AccountKey=", BASE64 | EQUALS, (40, 120), "azure-key"),
    after("SharedAccessKey=", BASE64 | EQUALS, (40, 120), "azure-key"),
];

/// The shapes by their first byte: those of byte `b` are
/// `ORDER[STARTS[b]..STARTS[b + 1]]`.
struct Index {
    starts: [u16; 257],
    order: [u16; SHAPES.len()],
}

const INDEX: &Index = &index();

const fn index() -> Index {
    let mut index = Index { starts: [0; 257], order: [0; SHAPES.len()] };
    let mut filled: usize = 0;
    let mut byte = 0;
    while byte < 256 {
        index.starts[byte] = filled as u16;
        let mut at = 0;
        while at < SHAPES.len() {
            if SHAPES[at].prefix.as_bytes()[0] as usize == byte {
                index.order[filled] = at as u16;
                filled += 1;
            }
            at += 1;
        }
        byte += 1;
    }
    index.starts[256] = filled as u16;
    index
}

/// Returns the secret of a known shape that begins at this position.
pub fn at(bytes: &[u8], from: usize) -> Option<Finding> {
    let first = bytes[from] as usize;
    let candidates = INDEX.starts[first] as usize..INDEX.starts[first + 1] as usize;
    INDEX.order[candidates].iter().find_map(|&shape| SHAPES[shape as usize].fits(bytes, from))
}

/// Returns whether a text begins with a known prefix and some of what follows it.
pub fn has_prefix(text: &[u8]) -> bool {
    let Some(&first) = text.first() else { return false };
    let candidates =
        INDEX.starts[first as usize] as usize..INDEX.starts[first as usize + 1] as usize;
    INDEX.order[candidates].iter().any(|&shape| {
        let prefix = SHAPES[shape as usize].prefix.as_bytes();
        prefix.len() >= 3 && text.len() > prefix.len() && text.starts_with(prefix)
    })
}

impl Shape {
    #[inline]
    fn fits(&self, bytes: &[u8], from: usize) -> Option<Finding> {
        if !bytes[from..].starts_with(self.prefix.as_bytes()) {
            return None;
        }
        let start = from + self.prefix.len();
        let mut end = run_end_within(bytes, start, self.set, self.most + 8);
        // A full stop or a dash at the end belongs to the sentence, not to the token.
        while end > start && !ends_token(bytes[end - 1]) {
            end -= 1;
        }
        let fits = end - start >= self.least
            && end - start <= self.most
            && class_at(bytes, end) & ALNUM == 0
            && self.proven(&bytes[start..end]);
        let range = if self.keep { start..end } else { from..end };
        fits.then_some(Finding { range, kind: self.kind })
    }

    fn proven(&self, body: &[u8]) -> bool {
        match self.proof {
            Form => distinct(body) >= 4,
            Mixed => mixed(body),
            Random => {
                let seen = look(body);
                seen.upper > 0 && seen.lower > 0 && seen.digits > 0 && random(body)
            }
        }
    }
}

fn ends_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'=' || byte == b'_' || byte == b'-'
}

/// Returns whether the text after a strong prefix is a token rather than a name or a placeholder.
fn mixed(body: &[u8]) -> bool {
    if distinct(body) < 4 || (placeholder(body) && !random(body)) {
        return false;
    }
    let seen = look(body);
    let letters = seen.letters();
    if seen.digits > 0 && letters > 0 {
        return seen.digit_changes >= 2 || seen.odd * 3 >= seen.pairs;
    }
    // Without digits, only uncommon letter pairs distinguish a token from a name; without letters, it
    // is a number.
    letters > 0 && seen.signs * 8 <= seen.length && seen.odd * 4 >= seen.pairs && seen.changes >= 3
}
