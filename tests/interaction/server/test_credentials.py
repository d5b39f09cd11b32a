import os

import pytest

from ding.interaction.access import RunToken, draw_run_token, read_run_token, require_token


def token_file(tmp_path, text="from-file\n", mode=0o600):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_without_variables_there_is_no_token():
    assert read_run_token() is None


def test_the_variable_comes_before_the_file(monkeypatch, tmp_path):
    monkeypatch.setenv("DING_TOKEN_FILE", token_file(tmp_path))
    assert read_run_token().is_in("Bearer from-file")
    monkeypatch.setenv("DING_TOKEN", "from-variable")
    assert read_run_token().is_in("Bearer from-variable")


@pytest.mark.guarantees("strangers")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o700, 0o666])
def test_a_file_that_others_may_use_is_refused(monkeypatch, tmp_path, mode):
    path = token_file(tmp_path, mode=mode)
    monkeypatch.setenv("DING_TOKEN_FILE", path)
    with pytest.raises(PermissionError, match=f"has mode {mode:04o}: it must be 0600") as error:
        read_run_token()
    assert path in str(error.value) and "from-file" not in str(error.value)


def test_a_file_of_another_user_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("DING_TOKEN_FILE", token_file(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read_run_token()


def test_a_missing_file_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("DING_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="none"):
        read_run_token()


@pytest.mark.parametrize("text", ["", " \n", "two words", "line\nline", "umläut"])
def test_what_is_no_token_is_refused_without_showing_it(monkeypatch, tmp_path, text):
    monkeypatch.setenv("DING_TOKEN_FILE", token_file(tmp_path, text))
    with pytest.raises(ValueError, match="holds no token") as error:
        read_run_token()
    assert not text.strip() or text not in str(error.value)


def test_a_token_is_compared_whole_and_shown_nowhere():
    token = RunToken("secret")
    assert token.is_in("Bearer secret") and token.is_in("BEARER secret")
    assert not any(map(token.is_in, [None, "", "secret", "Bearer", "Bearer secre", "Bearer secrets", "Basic secret"]))
    assert "secret" not in repr(token) + str(token)


def test_a_token_is_drawn_where_there_is_none_and_leaves_pages_open(monkeypatch):
    one, other = draw_run_token(), draw_run_token()
    assert one.secret != other.secret and len(one.secret) == 64 and not one.guards_pages
    monkeypatch.setenv("DING_TOKEN", "from-variable")
    assert draw_run_token().is_in("Bearer from-variable") and draw_run_token().guards_pages


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"])
def test_loopback_needs_no_token(host):
    require_token(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "198.51.100.1", "unknown.invalid"])
def test_anything_else_needs_one(host):
    with pytest.raises(PermissionError, match="DING_TOKEN"):
        require_token(host, None)
    require_token(host, RunToken("secret"))
