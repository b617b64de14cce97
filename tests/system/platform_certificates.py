"""Certificates as a platform gives them (SPIRE, Istio): a CA without constraints, and a SPIFFE URI."""

import subprocess


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def platform_certificate(folder, uri):
    """FOLDER with ca.crt, w.crt and w.key."""
    folder.mkdir()
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=p")
    openssl(folder, "req", *key, "-keyout", "w.key", "-out", "w.csr", "-subj", "/CN=w")
    (folder / "w.key").chmod(0o600)
    (folder / "extensions").write_text(f"subjectAltName=URI:{uri}\n")
    openssl(folder, "x509", "-req", "-in", "w.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "20", "-extfile", "extensions", "-out", "w.crt")
