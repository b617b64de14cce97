"""Sends over TLS 1.3 by OpenSSL with SSL_OP_ENABLE_KTLS and asks the kernel whether it did the encrypting."""
import os, socket, ssl, subprocess, sys, tempfile, threading

OP_ENABLE_KTLS = 1 << 3  # SSL_OP_ENABLE_KTLS of OpenSSL 3; Python names it from 3.12 on
SENT_BYTES = 1 << 18


def count(name):
    for line in open("/proc/net/tls_stat", encoding="ascii"):
        key, value = line.split()
        if key == name:
            return int(value)
    return 0


def context(kind, folder):
    made = ssl.SSLContext(kind)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.options |= OP_ENABLE_KTLS
    if kind == ssl.PROTOCOL_TLS_SERVER:
        made.load_cert_chain(folder + "/cert", folder + "/key")
    else:
        made.check_hostname = False
        made.load_verify_locations(folder + "/cert")
    return made


def exchange(folder):
    listener = socket.create_server(("127.0.0.1", 0))
    got = []

    def serve():
        with context(ssl.PROTOCOL_TLS_SERVER, folder).wrap_socket(listener.accept()[0], server_side=True) as peer:
            while sum(map(len, got)) < SENT_BYTES and (data := peer.recv(65536)):
                got.append(data)
            peer.sendall(b"whole")  # who closes with something unread resets the connection: each side reads all

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    sent = os.urandom(SENT_BYTES)
    with context(ssl.PROTOCOL_TLS_CLIENT, folder).wrap_socket(socket.create_connection(listener.getsockname(), 30)) as client:
        client.sendall(sent)
        if client.recv(16) != b"whole":
            return False
    server.join(30)
    return b"".join(got) == sent


def kernel_has_tls():
    """The raw layer: TCP_ULP (31) on a connection of our own."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname(), 10)
    try:
        client.setsockopt(socket.IPPROTO_TCP, 31, b"tls")
    except OSError as why:
        return str(why)
    return None


why = kernel_has_tls()
if why:
    sys.exit(f"the kernel refuses TCP_ULP tls: {why}")
with tempfile.TemporaryDirectory() as scratch:
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
                    "-keyout", scratch + "/key", "-out", scratch + "/cert"], check=True, capture_output=True)
    before = count("TlsTxSw")
    if not exchange(scratch):
        sys.exit("the bytes that came are not those that were sent")
    on = count("TlsTxSw") - before
if on == 0:
    print(f"the kernel takes TCP_ULP tls, but {ssl.OPENSSL_VERSION} did not hand it the keys")
    sys.exit(77)
print(f"{ssl.OPENSSL_VERSION}: the kernel encrypts what is sent ({on} connections' ends)")
