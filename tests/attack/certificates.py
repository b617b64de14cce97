"""Certificates that nobody should make: each one differs in one thing from the right one."""

import subprocess


def openssl(folder, *words):
    subprocess.run(["openssl", *map(str, words)], cwd=folder, check=True, capture_output=True, timeout=60)


def der(tag, data):
    length = bytes([len(data)]) if len(data) < 128 else bytes([0x81, len(data)]) if len(data) < 256 else bytes([0x82]) + len(data).to_bytes(2, "big")
    return bytes([tag]) + length + data


URI, DNS, EMAIL = 0x86, 0x82, 0x81
BOTH = "serverAuth,clientAuth"


class Authority:
    """A CA without constraints of its own, in a folder as `tombolo pki init` makes it. One key does for all that it signs."""

    def __init__(self, folder, site):
        self.folder = folder
        folder.mkdir()
        openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.crt",
                "-subj", f"/O=Tombolo/CN={site}", "-days", "2")
        openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "gw.key", "-out", "any.csr", "-subj", "/CN=gw")
        (folder / "gw.key").chmod(0o600)
        self.key = folder / "gw.key"

    def issue(self, stem, *names, usage=BOTH, is_ca=False, by=None):
        """names: (tag, bytes) of the subjectAltName, as they stand in the certificate. `by`: another CA's folder."""
        lines = [f"basicConstraints=critical,CA:{'TRUE' if is_ca else 'FALSE'}"]
        if usage:
            lines.append(f"extendedKeyUsage={usage}")
        if names:
            lines.append("subjectAltName=DER:" + der(0x30, b"".join(der(tag, data) for tag, data in names)).hex(":"))
        (self.folder / "extensions").write_text("\n".join(lines) + "\n")
        ca = by or self.folder
        openssl(self.folder, "x509", "-req", "-in", "any.csr", "-CA", ca / "ca.crt", "-CAkey", ca / "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "extensions", "-out", f"{stem}.crt")
        return self.folder / f"{stem}.crt"

    def sign_itself(self, stem, uri):
        """A certificate that nobody but its own key vouches for."""
        openssl(self.folder, "req", "-x509", "-key", "gw.key", "-out", f"{stem}.crt", "-subj", "/CN=gw", "-days", "2", "-addext", f"subjectAltName=URI:{uri}")
        return self.folder / f"{stem}.crt"


def wrong_names(site, gateway, others):
    """{what is wrong: names of a subjectAltName} around tombolo://SITE/GATEWAY (GATEWAY may be worker/NAME). `others`: right ones of somebody else."""
    right = f"tombolo://{site}/{gateway}"
    uris = {f"the name of {uri}": uri for uri in others}
    uris.update({
        "a slash at the end": right + "/", "two slashes": f"tombolo://{site}//{gateway}", "no gateway": f"tombolo://{site}/",
        "no path": f"tombolo://{site}", "no site": f"tombolo:///{gateway}", "no slashes": f"tombolo:{site}/{gateway}",
        "another scheme": f"https://{site}/{gateway}", "a scheme that begins so": f"tombolos://{site}/{gateway}",
        "a scheme in capitals": f"TOMBOLO://{site}/{gateway}", "a site in capitals": f"tombolo://{site.upper()}/{gateway}",
        "a port": f"tombolo://{site}:1/{gateway}", "a user": f"tombolo://u@{site}/{gateway}", "a query": right + "?a", "a fragment": right + "#a",
        "an escape": right[:-1] + f"%{ord(right[-1]):x}", "dots": f"tombolo://{site}/../{gateway}", "a dot": f"tombolo://./{gateway}",
        "a blank before": " " + right, "a blank behind": right + " ", "a newline behind": right + "\n", "a NUL and more": right + "\0.evil",
        "a NUL behind": right + "\0", "a name that is too long": f"tombolo://{site}/" + "g" * 65, "a very long name": f"tombolo://{site}/" + "g" * 4000,
        "a letter of another alphabet": right.replace("w", "\u0448") if "w" in right else right + "\u0448",
        "a SPIFFE URI that is not listed": f"spiffe://{site}/{gateway}",
        "a control character": right + "\x07", "a user of the machine": "unix:0", "nothing": "",
    })
    names = {what: [(URI, uri.encode())] for what, uri in uris.items() if uri != right}
    raw = right.encode()
    names.update({
        "no name at all": [], "a DNS name alone": [(DNS, site.encode())], "its URI as a DNS name": [(DNS, raw)], "its URI as an address of mail": [(EMAIL, raw)],
        "its URI twice": [(URI, raw), (URI, raw)], "its URI and another": [(URI, raw), (URI, f"tombolo://{site}/other".encode())],
        "another and its URI": [(URI, others[0].encode()), (URI, raw)], "its URI and one of another scheme": [(URI, raw), (URI, b"https://a/b")],
    })
    return names
