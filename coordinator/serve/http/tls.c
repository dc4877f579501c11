/* TLS by libevent's OpenSSL bufferevents. */
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "coordinator/serve/http/inside.h"

/* OpenSSL's reason for the oldest error, and its queue is empty then. */
static const char *reason(void)
{
    unsigned long code = ERR_get_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    return text ? text : "unknown reason";
}

/* No terminal is asked for the passphrase of a key: a server starts without people. */
static int no_passphrase(char *buf, int size, int rw, void *arg)
{
    (void)buf, (void)size, (void)rw, (void)arg;
    return 0;
}

int tls_open(const char *cert, const char *key, struct ssl_ctx_st **out, struct err *e)
{
    SSL_CTX *t = SSL_CTX_new(TLS_server_method());
    int rc = 0;

    if (!t)
        return err_set(e, -ENOMEM, "TLS does not start: %s", reason());
    SSL_CTX_set_min_proto_version(t, TLS1_2_VERSION);
    SSL_CTX_set_options(t, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(t, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(t, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(t, cert) != 1)
        rc = err_set(e, -EINVAL, "--tls-cert %s: no certificate in PEM form: %s", cert, reason());
    else if (SSL_CTX_use_PrivateKey_file(t, key, SSL_FILETYPE_PEM) != 1)
        rc = err_set(e, -EINVAL, "--tls-key %s: no key in PEM form that fits the certificate, without a passphrase: %s",
                     key, reason());
    else if (SSL_CTX_check_private_key(t) != 1)
        rc = err_set(e, -EINVAL, "--tls-key %s: does not belong to the certificate: %s", key, reason());
    if (rc) {
        SSL_CTX_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tls_close(struct ssl_ctx_st *t)
{
    SSL_CTX_free(t);
}

struct bufferevent *tls_bufferevent(struct ssl_ctx_st *t, struct event_base *base)
{
    SSL *ssl = SSL_new(t);
    struct bufferevent *b;

    if (!ssl)
        return NULL;
    b = bufferevent_openssl_socket_new(base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!b)
        SSL_free(ssl);
    else
        bufferevent_openssl_set_allow_dirty_shutdown(b, 1); /* a client that just closes is a client that has gone */
    return b;
}
