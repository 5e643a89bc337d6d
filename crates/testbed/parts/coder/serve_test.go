// Package licensed serves Coder's enterprise API with licences that can be had on request.
//
// Coder's licence check accepts only keys that Coder holds. Its own test harness, coderdenttest, runs the same API and
// handlers with a key pair that it makes in memory when it starts, so a licence that is signed here is worthless to any
// other process. The harness needs a *testing.T; that is why this program is a test, compiled with `go test -c`.
//
// It reads its configuration from the variables that a real coderd reads:
//
//	CODER_PG_CONNECTION_URL  the database, migrated here if need be
//	CODER_HTTP_ADDRESS       where to serve; a free loopback port when absent
//	CODER_ACCESS_URL         what coderd calls itself; the address it serves when absent
//	CODER_API_RATE_LIMIT     requests a minute; unlimited when absent
//	BED_LICENSES_ADDRESS     where licences are signed; a free loopback port when absent
//
// It prints one JSON line with its addresses, and ends on SIGTERM, SIGINT or, with -until-stdin-closes, when its standard
// input does.
package licensed_test

import (
	"database/sql"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"cdr.dev/slog/v3"
	"cdr.dev/slog/v3/sloggers/sloghuman"
	_ "github.com/lib/pq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coder/coder/v2/coderd/coderdtest"
	"github.com/coder/coder/v2/coderd/database/dbtestutil"
	"github.com/coder/coder/v2/coderd/database/migrations"
	"github.com/coder/coder/v2/coderd/rbac"
	"github.com/coder/coder/v2/enterprise/audit"
	"github.com/coder/coder/v2/enterprise/audit/backends"
	"github.com/coder/coder/v2/enterprise/coderd/coderdenttest"
)

var untilStdinCloses = flag.Bool("until-stdin-closes", false, "end when standard input closes")

// addresses is the line that tells the one who started us where we are.
type addresses struct {
	URL      string `json:"url"`
	Licenses string `json:"licenses"`
}

func TestServe(t *testing.T) {
	harness := startHarness(t)
	served := forward(t, listen(t, os.Getenv("CODER_HTTP_ADDRESS")), harness.Host)
	licenses := listen(t, os.Getenv("BED_LICENSES_ADDRESS"))
	go func() { _ = http.Serve(licenses, licenseHandler(t)) }()

	line, err := json.Marshal(addresses{
		URL:      "http://" + served,
		Licenses: "http://" + licenses.Addr().String(),
	})
	require.NoError(t, err)
	_, err = os.Stdout.Write(append(line, '\n'))
	require.NoError(t, err)
	waitForTheEnd()
}

// startHarness starts the enterprise API without a licence and without a user, and returns where it listens.
func startHarness(t *testing.T) *url.URL {
	databaseURL := os.Getenv("CODER_PG_CONNECTION_URL")
	require.NotEmpty(t, databaseURL, "CODER_PG_CONNECTION_URL names the database to serve from")
	migrate(t, databaseURL)

	// The harness's own logger keeps every line in memory until the test ends, which here it never does.
	logger := slog.Make(sloghuman.Sink(os.Stderr)).Leveled(slog.LevelInfo)
	store, pubsub := dbtestutil.NewDB(t, dbtestutil.WithURL(databaseURL), dbtestutil.WithLogger(logger))
	options := &coderdtest.Options{
		Database: store,
		Pubsub:   pubsub,
		Logger:   &logger,
		// The harness's own authorizer records every decision, for assertions that nobody makes here.
		Authorizer: rbac.NewStrictCachingAuthorizer(prometheus.NewRegistry()),
		Auditor:    audit.NewAuditor(store, audit.DefaultFilter, backends.NewPostgres(store, true)),
	}
	if limit := os.Getenv("CODER_API_RATE_LIMIT"); limit != "" {
		parsed, err := strconv.Atoi(limit)
		require.NoError(t, err, "CODER_API_RATE_LIMIT")
		options.APIRateLimit = parsed
	}
	if access := os.Getenv("CODER_ACCESS_URL"); access != "" {
		parsed, err := url.Parse(access)
		require.NoError(t, err, "CODER_ACCESS_URL")
		options.AccessURL = parsed
	}
	client, _, _, _ := coderdenttest.NewWithAPI(t, &coderdenttest.Options{
		Options:                    options,
		AuditLogging:               true,
		DontAddLicense:             true,
		DontAddFirstUser:           true,
		EntitlementsUpdateInterval: 10 * time.Second,
	})
	return client.URL
}

// migrate brings the database to the harness's schema: the harness migrates only the databases that it makes itself.
func migrate(t *testing.T, databaseURL string) {
	database, err := sql.Open("postgres", databaseURL)
	require.NoError(t, err)
	defer database.Close()
	require.NoError(t, migrations.Up(database), "migrate the database")
}

// listen binds the address, or a free loopback port when there is none.
func listen(t *testing.T, address string) net.Listener {
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	return listener
}

// forward joins each connection to one of the harness, whose own port cannot be chosen. It works on bytes, so that
// websockets pass.
func forward(_ *testing.T, listener net.Listener, harness string) string {
	go func() {
		for {
			outer, err := listener.Accept()
			if err != nil {
				return
			}
			go join(outer, harness)
		}
	}()
	return listener.Addr().String()
}

func join(outer net.Conn, harness string) {
	defer outer.Close()
	inner, err := net.Dial("tcp", harness)
	if err != nil {
		return
	}
	defer inner.Close()
	ended := make(chan struct{}, 2)
	pump := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go pump(inner, outer)
	go pump(outer, inner)
	<-ended
}

func waitForTheEnd() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if *untilStdinCloses {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end <- syscall.SIGTERM
		}()
	}
	<-end
}
