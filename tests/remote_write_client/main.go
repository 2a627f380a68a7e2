// Write three times by remote write 2.0 with the client library of Prometheus, and print what it was told was stored.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
)

type bearer struct{ token string }

func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(request)
}

func request(step int, now int64) *writev2.Request {
	symbols := writev2.NewSymbolTable()
	series := func(name string, more ...string) *writev2.TimeSeries {
		labels := append([]string{"__name__", name, "Hostname", "node-a", "job", "dcgm"}, more...)
		return &writev2.TimeSeries{LabelsRefs: symbols.SymbolizeLabels(labels, nil)}
	}
	sample := func(value float64) []*writev2.Sample { return []*writev2.Sample{{Value: value, Timestamp: now}} }
	gpu := "GPU-00000000-0000-0000-0000-000000000001"

	temperature := series("DCGM_FI_DEV_GPU_TEMP", "UUID", gpu)
	temperature.Samples = sample(40 + float64(step))
	temperature.Metadata = &writev2.Metadata{HelpRef: symbols.Symbolize("Temperature.")}
	replays := series("gpu_pcie_replay_total", "UUID", gpu)
	replays.Samples = sample(float64(step))
	replays.CreatedTimestamp = now - 60_000
	wait := series("wait_seconds")
	wait.Histograms = []*writev2.Histogram{{
		Count:          &writev2.Histogram_CountInt{CountInt: 3},
		ZeroCount:      &writev2.Histogram_ZeroCountInt{ZeroCountInt: 1},
		Sum:            3.5,
		PositiveSpans:  []*writev2.BucketSpan{{Offset: 0, Length: 2}},
		PositiveDeltas: []int64{1, 0},
		Timestamp:      now,
	}}
	unknown := series("not_in_the_catalogue")
	unknown.Samples = sample(1)
	made := &writev2.Request{Timeseries: []*writev2.TimeSeries{temperature, replays, wait, unknown}}
	made.Symbols = symbols.Symbols()
	return made
}

func main() {
	client := &http.Client{Transport: bearer{os.Args[2]}}
	api, err := remote.NewAPI(os.Args[1], remote.WithAPIHTTPClient(client), remote.WithAPIPath("api/v1/write"))
	if err != nil {
		panic(err)
	}
	for step := range 3 {
		sent := request(step, time.Now().UnixMilli())
		stats, err := api.Write(context.Background(), remote.WriteV2MessageType, sent)
		if err != nil {
			panic(err)
		}
		fmt.Println(stats.Samples, stats.Histograms, stats.Exemplars)
		time.Sleep(2 * time.Millisecond)
	}
}
