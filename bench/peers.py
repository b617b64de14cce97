"""Programs that users move weights with today: how each is served in a, and pulled from in b, encrypted and verified.

Each is a class with `needs` (programs, packages by bench/setup), serve() -> processes and pull(destination) -> argv."""

import os
import pathlib
import subprocess
import time

from veth import HOST

STREAMS = 8


def openssl(*words, folder, stdin=None):
    done = subprocess.run(["openssl", *map(str, words)], cwd=folder, input=stdin, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {words[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


class Ground:
    """A scratch folder with src/ dst/ pki/ conf/ log/, and two authorities: P-256 for TLS, RSA for grid programs."""

    def __init__(self, folder, source, wire):
        self.dir = pathlib.Path(folder)
        self.address = wire.address
        for name in ("src", "dst", "pki", "conf", "log", "certs", "run"):
            (self.dir / name).mkdir(parents=True, exist_ok=True)
        self.file = self.dir / "src" / source.name
        if not self.file.exists():
            os.link(source, self.file)
        self.sha256 = openssl("dgst", "-sha256", "-r", self.file, folder=self.dir).split()[0]
        self.names()
        self.grid_names()

    def issue(self, ca, out, subject, key, san=True):
        pki = self.dir / "pki"
        algorithm = ["-newkey", "rsa:2048"] if key == "rsa" else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        if ca is None:
            openssl("req", "-x509", *algorithm, "-nodes", "-keyout", f"{out}.key", "-out", f"{out}.crt", "-subj", subject,
                    "-days", "2", "-addext", "basicConstraints=critical,CA:TRUE", "-addext",
                    "keyUsage=critical,keyCertSign,cRLSign", folder=pki)
            return
        extra = pki / f"{out}.ext"
        names = ",".join([f"IP:{a}" for a in (*self.address.values(), "127.0.0.1")] + [f"DNS:{h}" for h in (*HOST.values(), "localhost")])
        extra.write_text("basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n"
                         + (f"subjectAltName={names}\n" if san else ""))
        openssl("req", *algorithm, "-nodes", "-keyout", f"{out}.key", "-out", f"{out}.csr", "-subj", subject, folder=pki)
        openssl("x509", "-req", "-in", f"{out}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2",
                "-extfile", extra, "-out", f"{out}.crt", folder=pki)

    def names(self):
        self.issue(None, "ca", "/O=bench/CN=authority", "ec")
        self.issue("ca", "server", f"/O=bench/CN={HOST['a']}", "ec")
        self.issue("ca", "client", f"/O=bench/CN={HOST['b']}", "ec")

    def grid_names(self):
        self.issue(None, "gca", "/O=bench/CN=gridca", "rsa")
        self.issue("gca", "ghost", f"/O=bench/CN={HOST['a']}", "rsa")
        self.issue("gca", "guser", "/O=bench/CN=user", "rsa", san=False)
        code = openssl("x509", "-hash", "-noout", "-in", "gca.crt", folder=self.dir / "pki").strip()
        certs = self.dir / "certs"
        (certs / f"{code}.0").write_bytes((self.dir / "pki/gca.crt").read_bytes())
        (certs / f"{code}.signing_policy").write_text(
            "access_id_CA X509 '/O=bench/CN=gridca'\npos_rights globus CA:sign\ncond_subjects globus '\"/O=bench/*\"'\n")
        (self.dir / "conf/gridmap").write_text('"/O=bench/CN=user" root\n')
        self.proxy()

    def proxy(self):
        """An RFC 3820 proxy of the user: what XRootD's client shows."""
        pki = self.dir / "pki"
        (pki / "proxy.ext").write_text("keyUsage=critical,digitalSignature,keyEncipherment\n"
                                       "proxyCertInfo=critical,language:id-ppl-inheritAll\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "proxy.key", "-out", "proxy.csr", "-subj",
                "/O=bench/CN=user/CN=7", folder=pki)
        openssl("x509", "-req", "-in", "proxy.csr", "-CA", "guser.crt", "-CAkey", "guser.key", "-set_serial", "7", "-days", "2",
                "-extfile", "proxy.ext", "-out", "proxy.crt", folder=pki)
        pem = b"".join((pki / n).read_bytes() for n in ("proxy.crt", "proxy.key", "guser.crt"))
        with open(os.open(pki / "proxy.pem", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as f:
            f.write(pem)


def wait_port(wire, port, timeout_s=10):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if f":{port} " in subprocess.run(wire.argv("a", "ss", "-Hltn"), capture_output=True, text=True, check=False).stdout:
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after {timeout_s} s")


class Peer:
    def resume(self, to):
        """The command that a user gives after the first was killed; most programs go on by the same command, or do not."""
        return self.pull(to)


class Nginx(Peer):
    """The origin of the programs that pull over HTTPS."""
    port = 8443

    def __init__(self, ground):
        self.ground, self.env = ground, {}

    def serve(self, wire):
        g = self.ground.dir
        (g / "conf/nginx.conf").write_text(
            f"daemon off; worker_processes 2; user root; pid {g}/run/nginx.pid; error_log {g}/log/nginx.log;\n"
            "events {}\nhttp { sendfile on; access_log off; server { "
            f"listen {self.ground.address['a']}:{self.port} ssl reuseport; ssl_protocols TLSv1.3; "
            "ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256; "
            f"ssl_certificate {g}/pki/server.crt; ssl_certificate_key {g}/pki/server.key; "
            f"ssl_client_certificate {g}/pki/ca.crt; ssl_verify_client on; location / {{ root {g}/src; }} }} }}\n")
        with open(g / "log/nginx.out", "ab") as log:
            server = wire.start("a", "nginx", "-p", g, "-c", g / "conf/nginx.conf", log=log)
        wait_port(wire, self.port)
        return [server]

    def url(self):
        return f"https://{self.ground.address['a']}:{self.port}"


class Rclone(Nginx):
    name, needs = "rclone from nginx, mutual TLS 1.3", ("nginx", "rclone")

    def pull(self, to):
        pki = self.ground.dir / "pki"
        return ["rclone", "copyto", "--config", "/dev/null", "--multi-thread-cutoff", "1M", "--multi-thread-streams", STREAMS,
                "--ca-cert", pki / "ca.crt", "--client-cert", pki / "client.crt", "--client-key", pki / "client.key",
                "--http-url", self.url(), f":http:{self.ground.file.name}", to]


class Aria2(Nginx):
    name, needs = "aria2 from nginx, mutual TLS 1.3", ("nginx", "aria2c")

    def pull(self, to):
        pki = self.ground.dir / "pki"
        return ["aria2c", "-q", "-d", to.parent, "-o", to.name, "-x", STREAMS, "-s", STREAMS, "-k", "4M", "-c",
                "--file-allocation=none", "--min-tls-version=TLSv1.3", f"--ca-certificate={pki}/ca.crt",
                f"--certificate={pki}/client.crt", f"--private-key={pki}/client.key", f"--checksum=sha-256={self.ground.sha256}",
                f"{self.url()}/{self.ground.file.name}"]


class GridFtp(Peer):
    name, needs = "Globus GridFTP, private data channel", ("globus-gridftp-server", "globus-url-copy")

    def __init__(self, ground):
        self.ground = ground
        pki = ground.dir / "pki"
        self.env = {"X509_CERT_DIR": str(ground.dir / "certs"), "X509_USER_CERT": str(pki / "guser.crt"),
                    "X509_USER_KEY": str(pki / "guser.key"), "GLOBUS_THREAD_MODEL": "pthread",
                    "GLOBUS_HOSTNAME": HOST["b"]}

    def serve(self, wire):
        pki = self.ground.dir / "pki"
        env = {**self.env, "X509_USER_CERT": str(pki / "ghost.crt"), "X509_USER_KEY": str(pki / "ghost.key"),
               "GRIDMAP": str(self.ground.dir / "conf/gridmap"), "GLOBUS_HOSTNAME": HOST["a"]}
        subprocess.run(["chown", "-R", "root", self.ground.dir], check=True)  # XRootD had it in the round before: keys of others are refused
        with open(self.ground.dir / "log/gridftp.out", "ab") as log:
            server = wire.start("a", "globus-gridftp-server", "-s", "-threads", "4", "-p", "2811", "-allow-root",
                                "-control-interface", self.ground.address["a"], "-data-interface", self.ground.address["a"], "-hostname", HOST["a"],
                                env=env, log=log)
        wait_port(wire, 2811)
        return [server]

    def pull(self, to):
        return ["globus-url-copy", "-p", STREAMS, "-bs", "4M", "-dcpriv", "-verify-checksum", "-checksum-alg", "SHA256",
                f"gsiftp://{HOST['a']}:2811{self.ground.file}", f"file://{to}"]


class XRootD(Peer):
    name, needs = "XRootD, roots", ("xrootd", "xrdcp")

    def __init__(self, ground):
        self.ground = ground
        self.env = {"X509_CERT_DIR": str(ground.dir / "certs"), "X509_USER_PROXY": str(ground.dir / "pki/proxy.pem")}

    def serve(self, wire):
        g, pki = self.ground.dir, self.ground.dir / "pki"
        (g / "conf/xrootd.cf").write_text("\n".join((
            "all.export /src", f"oss.localroot {g}", "xrd.port 1094", f"xrd.tls {pki}/ghost.crt {pki}/ghost.key",
            f"xrd.tlsca certdir {g}/certs", "xrootd.tls capable all", "xrootd.seclib libXrdSec.so",
            f"all.adminpath {g}/run", f"all.pidpath {g}/run", "xrootd.chksum max 4 crc32c adler32",
            f"sec.protocol gsi -certdir:{g}/certs -cert:{pki}/ghost.crt -key:{pki}/ghost.key -gridmap:{g}/conf/gridmap "
            "-crl:0 -gmapopt:1 -vomsat:0")) + "\n")
        subprocess.run(["chown", "-R", "xrootd", g], check=False, capture_output=True)
        with open(g / "log/xrootd.out", "ab") as log:
            # It asks the machine's own name, which has to resolve: one of its own namespace.
            server = wire.start("a", "unshare", "--uts", "sh", "-c", f'hostname {HOST["a"]} && exec "$@"', "sh", "xrootd", "-I", "v4", "-R", "xrootd", "-c", g / "conf/xrootd.cf", log=log)
        wait_port(wire, 1094)
        subprocess.run(["chown", "root", pki / "proxy.pem"], check=True)
        return [server]

    def pull(self, to):
        return ["xrdcp", "-f", "-N", "-s", "-S", STREAMS, "--cksum", "crc32c:source",
                f"roots://{HOST['a']}:1094//src/{self.ground.file.name}", to]

    def resume(self, to):
        return ["--continue" if word == "-f" else word for word in self.pull(to)]


class Rsync(Peer):
    name, needs = "rsync over stunnel, mutual TLS 1.3", ("rsync", "stunnel4")

    def __init__(self, ground):
        self.ground, self.env = ground, {}

    def serve(self, wire):
        g, pki = self.ground.dir, self.ground.dir / "pki"
        (g / "conf/rsyncd.conf").write_text(f"use chroot = no\nuid = 0\ngid = 0\n[src]\npath = {g}/src\nread only = yes\n")
        common = (f"foreground = yes\nsyslog = no\nCAfile = {pki}/ca.crt\nverifyChain = yes\nsslVersionMin = TLSv1.3\n"
                  "ciphersuites = TLS_AES_128_GCM_SHA256\n")
        (g / "conf/tunnel-a.conf").write_text(f"{common}cert = {pki}/server.crt\nkey = {pki}/server.key\n[rsync]\n"
                                              f"accept = {self.ground.address['a']}:8730\nconnect = 127.0.0.1:8731\n")
        (g / "conf/tunnel-b.conf").write_text(f"{common}client = yes\ncert = {pki}/client.crt\nkey = {pki}/client.key\n[rsync]\n"
                                              f"accept = 127.0.0.1:8731\nconnect = {self.ground.address['a']}:8730\n")
        with open(g / "log/rsync.out", "ab") as log:
            started = [wire.start("a", "rsync", "--daemon", "--no-detach", "--port", "8731", "--address", "127.0.0.1",
                                  "--config", g / "conf/rsyncd.conf", log=log)]
            started += [wire.start(end, "stunnel4", g / f"conf/tunnel-{end}.conf", log=log) for end in "ab"]
        wait_port(wire, 8730)
        wait_port(wire, 8731)
        return started

    def pull(self, to):
        return ["rsync", "-W", "--inplace", "--partial", "--checksum-choice=xxh128",
                f"rsync://127.0.0.1:8731/src/{self.ground.file.name}", to]


PEERS = (Rclone, Aria2, GridFtp, XRootD, Rsync)
