package licensed_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"github.com/stretchr/testify/require"

	"github.com/coder/coder/v2/codersdk"
	"github.com/coder/coder/v2/enterprise/coderd/coderdenttest"
	"github.com/coder/coder/v2/enterprise/coderd/license"
)

// licenseRequest says what a licence grants and when. What is absent is as coderdenttest has it: a licence without
// features, valid for an hour.
type licenseRequest struct {
	FeatureSet    codersdk.FeatureSet `json:"feature_set"`
	AllFeatures   bool                `json:"all_features"`
	Features      license.Features    `json:"features"`
	Addons        []codersdk.Addon    `json:"addons"`
	Trial         bool                `json:"trial"`
	DeploymentIDs []string            `json:"deployment_ids"`
	AccountType   string              `json:"account_type"`
	AccountID     string              `json:"account_id"`
	// RequireTelemetry makes a licence that counts only where telemetry is on.
	RequireTelemetry bool `json:"require_telemetry"`
	// Term sets the dates at once: valid (60 days), grace, expired or future. Single dates go over it.
	Term      string    `json:"term"`
	IssuedAt  time.Time `json:"issued_at"`
	NotBefore time.Time `json:"not_before"`
	GraceAt   time.Time `json:"grace_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// licenseHandler signs a licence for each POST and answers with the bare JWT.
func licenseHandler(t *testing.T) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost {
			response.Header().Set("Allow", http.MethodPost)
			http.Error(response, "POST a JSON object that says what the licence grants", http.StatusMethodNotAllowed)
			return
		}
		var asked licenseRequest
		decoder := json.NewDecoder(request.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&asked); err != nil {
			http.Error(response, "read the licence request: "+err.Error(), http.StatusBadRequest)
			return
		}
		options, err := asked.options(time.Now())
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		signed := coderdenttest.GenerateLicense(t, *options)
		if asked.RequireTelemetry {
			signed = requireTelemetry(t, signed)
		}
		_, _ = fmt.Fprintln(response, signed)
	})
}

// requireTelemetry signs a licence again with a claim that the harness has no option for.
func requireTelemetry(t *testing.T, signed string) string {
	var claims license.Claims
	_, _, err := jwt.NewParser().ParseUnverified(signed, &claims)
	require.NoError(t, err)
	claims.RequireTelemetry = true
	return coderdenttest.GenerateLicenseRaw(t, claims)
}

func (asked licenseRequest) options(now time.Time) (*coderdenttest.LicenseOptions, error) {
	options := &coderdenttest.LicenseOptions{
		FeatureSet:    asked.FeatureSet,
		AllFeatures:   asked.AllFeatures,
		Features:      asked.Features,
		Addons:        asked.Addons,
		Trial:         asked.Trial,
		DeploymentIDs: asked.DeploymentIDs,
		AccountType:   asked.AccountType,
		AccountID:     asked.AccountID,
	}
	switch asked.Term {
	case "":
	case "valid":
		options.Valid(now)
	case "grace":
		options.GracePeriod(now)
	case "expired":
		options.Expired(now)
	case "future":
		options.FutureTerm(now)
	default:
		return nil, fmt.Errorf("term %q: expected valid, grace, expired or future", asked.Term)
	}
	for _, date := range []struct{ to, from *time.Time }{
		{&options.IssuedAt, &asked.IssuedAt},
		{&options.NotBefore, &asked.NotBefore},
		{&options.GraceAt, &asked.GraceAt},
		{&options.ExpiresAt, &asked.ExpiresAt},
	} {
		if !date.from.IsZero() {
			*date.to = *date.from
		}
	}
	return options, nil
}
