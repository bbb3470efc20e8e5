//! Classes of secrets and of public text, each with several made-up members.

use super::mask;

/// Checks that `@` is masked in a text when a secret is there.
fn check_masked(around: &str, secret: &str, kind: &str) {
    let (before, after) = around.split_once('@').expect("a place for the secret");
    let input = format!("{before}{secret}{after}");
    assert_eq!(mask(&input).text, format!("{before}[secret:{kind}]{after}"), "from {input}");
}

fn check_clear(text: &str) {
    assert_eq!(mask(text).text, text);
}

#[test]
fn passwords_in_any_language_and_alphabet_are_masked() {
    for (around, secret) in [
        ("Das neue Kennwort heißt @, bitte merken", "Größe9Baum"),
        ("Das Passwort ist jetzt @.", "Käse-Toast-81"),
        ("Le mot de passe est désormais @ ici", "Forêt&38vert"),
        ("La contraseña ahora es @", "Ñandú.Negro.55"),
        ("A senha agora é @, não passe adiante", "Pão4Quente"),
        ("la password è ora @", "Gatto_Nero19x"),
        ("Het wachtwoord luidt @", "Regen7Fiets"),
        ("Hasło brzmi @", "Łąka12_las"),
        ("Пароль теперь @", "Ключ4Дом9"),
        ("パスワードは @ です", "Yama88kawa"),
        ("登录密码：@", "Shan77shui"),
        ("my pass is @", "tiger99lily"),
        ("CREATE USER joe IDENTIFIED BY '@';", "tiger99Lily"),
        ("requirepass @", "tiger99Lily"),
        ("username joe password 7 @", "094F471A1A0A464058"),
    ] {
        check_masked(around, secret, "password");
    }
    for text in [
        "Das Passwort ist jetzt 16 Zeichen lang.",
        "Le mot de passe est maintenant chiffré en AES-256.",
        "Пароль теперь обязателен, минимум 8 символов.",
        "Hasło jest teraz szyfrowane algorytmem SHA-256.",
        "A password must not contain Größe2 or a name.",
    ] {
        check_clear(text);
    }
}

#[test]
fn arguments_of_commands_and_calls_are_masked() {
    let key = "7c1e09bf52d84a36".repeat(2);
    for (around, secret) in [
        ("openssl enc -d -aes-128-cbc -K @ -iv 00 -in x", key.as_str()),
        ("openssl dgst -mac HMAC -macopt hexkey:@ x", &key),
        ("openssl enc -aes256 -pass pass:@ -in x", "Herbst44laub"),
        ("openssl dgst -hmac @ x", "Herbst44laub"),
        ("java -jar jenkins-cli.jar -auth joe:@ list-jobs", &key),
        ("http --auth joe:@ GET :8080/x", "Herbst44laub"),
        ("ssh-keygen -t ed25519 -N '@' -f id", "Herbst44laub"),
        ("zip -P @ a.zip a", "Herbst44laub"),
        ("7z x a.7z -p@", "Herbst44laub"),
        ("snmpwalk -v3 -A @ host", "Herbst44laub"),
        ("xfreerdp /v:host /u:joe /p:@", "Herbst44laub"),
        ("WIFI:S:home;T:WPA;P:@;;", "Herbst44laub"),
        ("joe:@@tcp(127.0.0.1:3306)/app", "Herbst44laub"),
        ("jdbc:oracle:thin:joe/@@db:1521/x", "Herbst44laub"),
        ("define( 'DB_PASSWORD', '@' );", "Herbst44laub"),
        ("config.set(\"password\", \"@\")", "Herbst44laub"),
    ] {
        check_masked(around, secret, "password");
    }
    for text in [
        "openssl enc -aes-256-cbc -K $KEY -iv $IV",
        "scp -P 2222 a b:/c",
        "unzip -P \"$ZIP_PASSWORD\" a.zip",
        "docker pull node:22alpine3@sha256:abc",
        "yarn add npm:Lodash4x@4.17.21",
        "define('DB_PASSWORD', getenv('DB_PASSWORD'));",
        "assertEquals(\"password\", \"field2name\")",
    ] {
        check_clear(text);
    }
}

#[test]
fn keys_of_web_frameworks_are_masked() {
    for (around, secret) in [
        ("SECRET_KEY = '@'", "django-insecure-k%s8(v^2x$q!7m&w0=z+d5r#b*1p)t4h-n_c6j3"),
        (
            "define('AUTH_KEY', '@');",
            "q$}4,K|n%s;v!8Zc ^pX2(mT9<wE=6+LrYd>B0#hGu*7Qa&~1oJ-3if]5eR{sWk",
        ),
        ("$settings['hash_salt'] = '@';", "Vn4kQ9tLm2Rz7HwBc5Ny8PdFg4Js6Vu1Ta0Qe3KxMzP"),
        ("'cookieValidationKey' => '@',", "Vn4kQ9tLm2Rz7HwBc5Ny8PdFg4Js6Vu1"),
        ("AIRFLOW__CORE__FERNET_KEY=@", "Vn4kQ9tLm2Rz7HwBc5Ny8PdFg4Js6Vu1Ta0Qe3KxMzP="),
        ("APP_SECRET=@", "9f3ac27be1045d689f3ac27be1045d68"),
    ] {
        check_masked(around, secret, "assigned-secret");
    }
    check_clear("\"secret\": \"Use (a-z), [0-9] & one of !#$%^*; at most 64 characters, please.\"");
    check_clear("password: '^(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9@$!%*?&]{8,64}$'");
}

#[test]
fn tokens_are_masked_across_what_breaks_a_line() {
    let (start, end) = ("ghp_Vn4kQ9tLm2Rz7HwBc5", "Ny8PdFg4Js6Vu1Ta0Q");
    for (before, gap, after) in [
        ("clone https://joe:", "\n", "@github.com/a/b.git"),
        ("Your token =3D ", "=\n", " expires"),
        ("$t = ", "`\n", ""),
        ("set T=", "^\r\n", ""),
        ("│ token: ", "       │\n│ ", "              │"),
    ] {
        let masked = mask(&format!("{before}{start}{gap}{end}{after}")).text;
        assert!(!masked.contains("Vn4k") && !masked.contains("Ta0Q"), "{masked}");
    }
}

#[test]
fn identifiers_digests_and_public_keys_are_not_masked() {
    for text in [
        "x-request-id: 7Hq2kLmN9pRsTuVwXyZ3aBcD4eFgH",
        "x-amz-id-2: Zp3kQ9vLmXt7RwHb2Nc5YdFg8JsVu1Ta0QeKxM4BzPqWnErTyUiO=",
        "<HostId>dG2kLmN9pRsTuVwXyZ3aBcD4eFgHq7ZxC1vB0nM6qWeRtY=</HostId>",
        "request id 7Hq2kLmN9pRsTuVwXyZ3aBcD4eFgH failed",
        "ETag: W/\"K9xQ2vLmXt7RwHb2Nc5YdFg8JsVu1\"",
        "pm_1Nq8xk2eZvKYlo2CQd7Rt9Lm of cus_Pq8Rs7Tu6Vw5Xy was refunded by re_3Nq8xk2eZvKYlo2CQd7Rt9Lm",
        "stripe.js with pk_test_51Nq8xk2eZvKYlo2CQd7Rt9LmXt7RwHb2",
        "pinned QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG",
        "narHash = \"sha256-K9xQ2vLmXt7RwHb2Nc5YdFg8JsVu1Ta0QeKxM4BzPqW=\"",
        "API key ID: 6ba7b810-9dad-41d1-80b4-00c04fd430c8",
        "Subject: =?UTF-8?B?K9xQ2vLmXt7RwHb2Nc5YdFg8JsVu1Ta0Qe==?=",
        "\"X-Amzn-Trace-Id\": \"Root=1-6692ea70-181d2b331d51fb157521fba0\"",
        "\"jti\": \"Q9vLmXt7RwHb2Nc5YdFg8Js\", \"nextPageToken\": \"CAUQAA9xQ2vLmXt7RwHb2Nc5\"",
    ] {
        check_clear(text);
    }
    check_masked(
        "secret of the payment: @",
        "pi_3Nq8xk2eZvKYlo2CQd7Rt9Lm_secret_Vn4kQ9tLm2Rz7HwBc5Ny8PdFg",
        "stripe-secret",
    );
}

#[test]
fn simple_values_of_variables_and_headers_are_masked() {
    for (text, secret) in [
        ("PASSWORD=letmein123", "letmein123"),
        ("export DB_PASSWORD=summer2024 && make", "summer2024"),
        ("SECRET_KEY=supersecretvalue", "supersecretvalue"),
        ("Authorization: Bearer mysecrettoken123", "mysecrettoken123"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
        ("password: letmein123", "letmein123"),
    ] {
        let masked = mask(text).text;
        assert!(!masked.contains(secret), "{masked}");
    }
    let token = format!("the app's token is hob_{}", "3f9c1e7a5b2d4f60".repeat(4));
    assert_eq!(mask(&token).text, "the app's token is [secret:hob-token]");
    for text in [
        "PASSWORD=changeme",
        "PASSWORD=password",
        "API_KEY=your-api-key-here-123",
        "TOKEN=$GITHUB_TOKEN",
        "SECRET_KEY=${SECRET_KEY:-none}",
        "Authorization: Bearer <token>",
        "Authorization: Bearer token",
        "MAX_TOKENS=4096",
        "TOKEN_FILE=/run/secrets/token1",
    ] {
        assert_eq!(mask(text).text, text);
    }
}
